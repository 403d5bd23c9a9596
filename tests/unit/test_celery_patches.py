"""What is patched of Celery, kombu and billiard; `tests/integration` meets the faults on a real worker."""

from types import SimpleNamespace
from typing import Any

import billiard.pool
import pytest
from celery.worker.heartbeat import Heart
from kombu.transport import redis

from sensorpool.service.celery_patches import replace_worn_children


def test_a_place_in_the_prefetch_is_free_though_redis_did_not_take_the_acknowledgement() -> None:
    class Away(redis.QoS):  # type: ignore[misc]
        def _remove_from_indices(self, *_: Any) -> Any:
            raise ConnectionError("away")

    qos = Away(SimpleNamespace(do_restore=False), prefetch_count=1)
    qos._delivered["tag"] = "a message"
    assert not qos.can_consume()
    with pytest.raises(ConnectionError):
        qos.ack("tag")
    assert qos.can_consume()


def test_a_heartbeat_is_tried_once() -> None:
    sent: list[bool] = []
    eventer = SimpleNamespace(
        enabled=True, on_enabled=set(), on_disabled=set(), send=lambda *_, retry, **__: sent.append(retry)
    )
    Heart(SimpleNamespace(call_repeatedly=lambda *_: None), eventer).start()
    assert sent == [False]


def test_a_child_asks_after_each_job_whether_it_is_to_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, asked = [100, 100, 300, 100, 100], list[str | None]()
    monkeypatch.setattr(billiard.pool, "mem_rss", lambda: taken[len(asked)])
    monkeypatch.setattr(billiard.pool, "MAXMEM_USED_FMT", billiard.pool.MAXMEM_USED_FMT)

    def is_worn(limit: str | None) -> bool:
        asked.append(limit)
        return len(asked) == 4

    worker = SimpleNamespace(max_tasks_per_child=4, max_memory_per_child=200)
    begin_child = replace_worn_children(worker)
    assert worker.max_tasks_per_child is None
    begin_child(is_worn)
    replaced = [billiard.pool.mem_rss() > worker.max_memory_per_child for _ in taken]
    assert replaced == [False, False, False, True, False]
    jobs = "it has done {} jobs".format
    assert asked == [None, None, "it has taken 300 KB of memory, of 200", jobs(4), jobs(5)]
