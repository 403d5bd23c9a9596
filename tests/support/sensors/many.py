"""Sensors that answer many contexts in one call."""

import asyncio
from collections.abc import Sequence
from datetime import date
from typing import Any, ClassVar

from sensorpool.errors import InfraFailure
from tests.support.sensors.answering import _say


class Many:
    """Answers many contexts at once, each with the value of its ``say``."""

    calls: ClassVar[list[list[Any]]] = []

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        says = [context["say"] for context in contexts]
        cls.calls.append(says)
        if "throw" in says:
            raise ValueError("one of them is bad")
        if "infra" in says:
            raise InfraFailure("no backend is there")
        return [RuntimeError("this one") if say == "error" else say for say in says]


class ManyTooFew(Many):
    """Gives too few answers."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        return [True] * (len(contexts) - 1)


class ManyGives(Many):
    """Returns a collection of the type that its contexts name."""

    given: ClassVar[dict[str, Any]] = {"dict": {0: False, 1: False}, "set": {False, 0.5}, "str": "no", "bytes": b"no"}

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        return cls.given[contexts[0]["say"]]


class ManyYields(Many):
    """Yields its answers one by one."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        for context in contexts:
            yield context["say"]


class ManyAsync(Many):
    """Answers as a coroutine."""

    @classmethod
    async def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        await asyncio.sleep(0)
        return [context["say"] for context in contexts]


class ManyForgets(Many):
    """Calls a coroutine function, and does not await it."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        says = [context["say"] for context in contexts if context["say"] != "left out"]
        return [_say(say) if say == "coroutine" else say for say in says]


class ManyNothing(Many):
    """Returns None."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        return None


class ManyChanges(Many):
    """Changes its contexts in place, at the top and inside, and then answers as `Many` does."""

    changed: ClassVar[list[Any]] = []  # the contexts, as the calls left them

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> Any:
        for context in contexts:
            context["day"] = date.fromisoformat(context["day"])
            context["more"] = len(cls.changed)
            if "days" in context:
                context["days"]["parts"].append(context["days"].pop("first"))
        cls.changed += contexts
        return super().poke_many(contexts)
