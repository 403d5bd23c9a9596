"""Sensors that wait as coroutines, and disturb their event loop in every way that a coroutine can."""

import asyncio
import concurrent.futures
from typing import Any

from tests.support.sensors.gates import LONG, arrived, departed, gates, gauges


class AsyncBlocks:
    """Blocks its event loop until its gate opens."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def poke(self, context: Any) -> Any:
        arrived[self.name].set()
        gates[self.name].wait(LONG)
        return True


class AsyncWaits(AsyncBlocks):
    """Waits for its gate without blocking the loop."""

    async def poke(self, context: Any) -> Any:
        with gauges[self.name]:
            arrived[self.name].set()
            while not gates[self.name].is_set():
                await asyncio.sleep(0.005)
        return True


class AsyncSwallows(AsyncBlocks):
    """Ignores its cancellation."""

    async def poke(self, context: Any) -> Any:
        arrived[self.name].set()
        while not gates[self.name].is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue
        departed[self.name].set()
        return True


class _Stubborn(asyncio.Future[Any]):
    def cancel(self, msg: Any = None) -> bool:
        raise RuntimeError("it cannot be cancelled")


class AsyncAwaitsTheStubborn(AsyncBlocks):
    """Awaits what cannot be cancelled: an attempt raises."""

    async def poke(self, context: Any) -> Any:
        return await _Stubborn()


class AsyncCancels(AsyncBlocks):
    """Raises `CancelledError` although it was not cancelled."""

    async def poke(self, context: Any) -> Any:
        raise asyncio.CancelledError


class AsyncCancelsItself(AsyncBlocks):
    """Cancels the task that it runs in."""

    async def poke(self, context: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(LONG)


class AsyncCancelled(AsyncBlocks):
    """Waits for a future that is cancelled."""

    async def poke(self, context: Any) -> Any:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.cancel()
        future.result()


class AsyncLeavesBlocker(AsyncBlocks):
    """Lands, and leaves a task that blocks the loop until the gate opens."""

    async def poke(self, context: Any) -> Any:
        asyncio.get_running_loop().call_later(0.05, self._block)
        return True

    def _block(self) -> None:
        arrived[self.name].set()
        gates[self.name].wait(LONG)


class AsyncBlocksByCallback(AsyncLeavesBlocker):
    """Blocks the loop by a callback, and waits."""

    async def poke(self, context: Any) -> Any:
        await super().poke(context)
        await asyncio.sleep(LONG)


class AsyncBlocksByTask(AsyncLeavesBlocker):
    """Blocks the loop by a task of its own, and waits for it."""

    async def poke(self, context: Any) -> Any:
        await asyncio.create_task(self._block_in_task())

    async def _block_in_task(self) -> None:
        self._block()


class AsyncWaitsByTask(AsyncBlocks):
    """Waits for its gate in tasks of its own."""

    async def poke(self, context: Any) -> Any:
        await asyncio.gather(*(asyncio.create_task(AsyncWaits.poke(self, context)) for _ in range(2)))
        return True


class AsyncCancelsAll(AsyncBlocks):
    """Cancels all other tasks of the event loop."""

    async def poke(self, context: Any) -> Any:
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        return False


class AsyncClosesThreads(AsyncBlocks):
    """Closes the threads of the event loop."""

    async def poke(self, context: Any) -> Any:
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
        return False


class AsyncSetsUp(AsyncBlocks):
    """Sets up its event loop for itself: its tasks, its threads, and what is done with errors."""

    async def poke(self, context: Any) -> Any:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._fails)
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        loop.set_exception_handler(self._fails)
        loop.set_debug(True)
        return False

    @staticmethod
    def _fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("its scope is over")


class AsyncStops(AsyncBlocks):
    """Stops its event loop."""

    async def poke(self, context: Any) -> Any:
        asyncio.get_running_loop().stop()
        return False


class AsyncExits(AsyncBlocks):
    """Leaves a task that ends the process."""

    async def poke(self, context: Any) -> Any:
        self.task = asyncio.create_task(self._exit())
        await asyncio.sleep(0.01)
        return False

    async def _exit(self) -> None:
        raise SystemExit(1)


class AsyncBreaks(AsyncBlocks):
    """Breaks its event loop, once."""

    async def poke(self, context: Any) -> Any:
        if not arrived[self.name].is_set():
            arrived[self.name].set()
            self.selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
            self.selector.select = self._select
            await asyncio.sleep(LONG)
        return False

    def _select(self, *_: Any) -> None:
        del self.selector.select
        raise OSError("bad file descriptor")


class AsyncHangsOnThread(AsyncBlocks):
    """Hands a call to a thread that blocks until its gate opens."""

    async def poke(self, context: Any) -> Any:
        return await asyncio.to_thread(gates[self.name].wait, LONG)


class AsyncAsksOnThread(AsyncBlocks):
    """Calls on threads: directly, and by a look-up of a name."""

    async def poke(self, context: Any) -> Any:
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
        return all(await asyncio.gather(*(asyncio.to_thread(bool, 1) for _ in range(40))))


class AsyncCancelsOwn(AsyncBlocks):
    """Cancels its own tasks: directly, after a time, and from a thread."""

    async def poke(self, context: Any) -> Any:
        by_hand = asyncio.create_task(asyncio.sleep(LONG))
        on_thread = asyncio.create_task(asyncio.sleep(LONG))
        await asyncio.sleep(0)
        by_hand.cancel()
        await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, on_thread.cancel)
        try:
            await asyncio.wait_for(asyncio.sleep(LONG), 0.01)
        except TimeoutError:
            ended = await asyncio.gather(by_hand, on_thread, return_exceptions=True)
            return all(isinstance(error, asyncio.CancelledError) for error in ended)


class AsyncTimesOut(AsyncBlocks):
    """Has a time limit of its own, and overruns it."""

    async def poke(self, context: Any) -> Any:
        raise TimeoutError("its own")
