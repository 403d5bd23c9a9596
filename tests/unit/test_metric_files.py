"""Metrics on a full disk: the process does its work and does not count."""

import errno
import os
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from sensorpool.worker import metrics
from sensorpool.worker.metric_files import AllocatedDict
from tests.support.small_disk import FILL, on_a_small_disk

WORKS_ON = f"""
import os, sys
from sensorpool.model.values import JobResult
from sensorpool.worker import metrics
metrics.prepare()
counts = metrics.Metrics()
counts.start()
counts.job(JobResult(saved=1))
{FILL}
counts.refused()  # on blocks that this process has
child = os.fork()
if child == 0:
    for each in range(200):
        counts.not_here({{f"a.Class{{each}}"}}, False)
    counts.job(JobResult(saved=1))
    print("the child works on", flush=True)
    os._exit(0)
print("status", os.waitpid(child, 0)[1], flush=True)
"""


def test_a_child_lives_on_a_full_disk(tmp_path: Path) -> None:
    done = on_a_small_disk(WORKS_ON, tmp_path)
    strike, works, status = done.stdout.splitlines()
    said = [line for line in done.stderr.splitlines() if "metrics are not counted" in line]
    assert strike == os.strerror(errno.ENOSPC)
    assert (works, status) == ("the child works on", "status 0")
    assert len(said) == 3, said  # once for each kind of metric, whatever is counted


def refuse(monkeypatch: pytest.MonkeyPatch, above: int) -> list[int]:
    """Have the disk be full for files longer than so many bytes; return the lengths that were asked for."""
    asked: list[int] = []
    allocate = os.posix_fallocate

    def allocate_some(descriptor: int, start: int, length: int) -> None:
        asked.append(length)
        if length > above:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, start, length)

    monkeypatch.setattr(os, "posix_fallocate", allocate_some)
    return asked


def test_a_file_without_blocks_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = refuse(monkeypatch, above=0)
    kept = AllocatedDict(str(tmp_path / "counter_1.db"))
    kept.write_value("key", 1.0, 0.0)
    assert kept.read_value("key") == (0.0, 0.0)
    kept.close()
    assert len(asked) == 1
    assert list(tmp_path.iterdir()) == []  # a scrape reads all files, and an empty one has no head


def test_a_file_that_cannot_grow_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = refuse(monkeypatch, above=8_192)
    path = str(tmp_path / "counter_1.db")
    kept = AllocatedDict(path)
    keys = [f"{number:0100d}" for number in range(100)]
    for number, key in enumerate(keys):
        kept.write_value(key, float(number), 0.0)
    assert asked == [4_096, 8_192, 12_288]
    kept.write_value(keys[0], 7.0, 0.0)
    kept.close()
    found = {key.strip(): value for key, value, _, _ in MmapedDict.read_all_values_from_file(path)}
    assert 0 < len(found) < len(keys)
    assert found == {key: float(number) for number, key in enumerate(keys[: len(found)])} | {keys[0]: 7.0}


def test_prometheus_reads_what_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "counter_1.db")
    kept = AllocatedDict(path)
    keys = [f"é{'x' * number}" for number in range(300)]
    for number, key in enumerate(keys):
        kept.write_value(key, float(number), 0.0)
    kept.close()
    again = AllocatedDict(path)
    assert [again.read_value(key)[0] for key in keys] == list(map(float, range(300)))
    again.close()
    assert os.stat(path).st_blocks * 512 >= os.stat(path).st_size


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "gone"))
    with pytest.raises(OSError, match="PROMETHEUS_MULTIPROC_DIR is no directory"):
        metrics.prepare()
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ
