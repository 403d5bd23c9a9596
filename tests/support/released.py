"""Versions from the repository's history, as wheels: they run beside this version, as in a rolling deployment."""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
FIRST_RELEASE = "274687780b9e29fddee6e2ad98e9b6d22fab3f4f"
"""The code that was released first: the tables of migration 0003, and all modules in one folder."""


def unpack(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit, and unpack it; return the folder for the front of a process's ``PYTHONPATH``.

    Without the history, the calling test is skipped; it fails where the history should exist.
    """
    archive = _git("archive", "--format=tar", commit)
    if archive.returncode:
        _do_without(f"{commit[:12]} is not in this repository's history")
    source, built, unpacked = (folder / name for name in ("source", "built", "unpacked"))
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(source, filter="data")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = built.glob("*.whl")
    with ZipFile(wheel) as packed:
        packed.extractall(unpacked)
    return unpacked


def before_newest_migration() -> str:
    """Return the commit before the one that added the newest migration; skip the test if it is not known."""
    newest = sorted((ROOT / "migrations" / "versions").glob("0*.py"))[-1]
    found = _git("log", "--diff-filter=A", "--format=%H", "--", str(newest)).stdout.split()
    before = _git("rev-parse", "--verify", "--quiet", f"{found[-1].decode()}^") if found else None
    if before is None or before.returncode:
        _do_without("the commit before the newest migration is not in this repository's history")
    return before.stdout.decode().strip()


def _do_without(why: str) -> None:
    """Skip the test; fail it on a machine that runs all tests, unless the history was left out on purpose."""
    is_shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
    if os.environ.get("CI") == "true" and not is_shallow:
        pytest.fail(f"{why}, and this is no shallow clone")
    pytest.skip(f"{why}: {'a shallow clone' if is_shallow else 'no clone of it'}")


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        # the checkout may belong to another user, as in most containers
        own = ("-c", f"safe.directory={ROOT}")
        return subprocess.run(["git", "-C", str(ROOT), *own, *arguments], capture_output=True)
    except FileNotFoundError:  # no git
        return subprocess.CompletedProcess(arguments, 127, b"", b"")
