"""What a pattern stands for, read from sources: nothing of it is executed, and what is in doubt is left out."""

import os
import random
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from sensorpool.config.allowlist import Allowlist
from sensorpool.config.sources.packages import Found

AIRFLOW = "from airflow.sdk import BaseSensorOperator\n"
POKES = "class Pokes:\n    def poke(self):\n        return True\n"
Write = Callable[[dict[str, str]], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules into a folder of ``sys.path``. Whoever executes one of them fails the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    executed = f"open({str(tmp_path / 'executed')!r}, 'w').close()\n"

    def write(modules: dict[str, str]) -> None:
        for path, source in modules.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{dedent(source.replace('AIRFLOW', AIRFLOW.strip()))}\n{executed}")

    yield write
    assert not (tmp_path / "executed").exists(), "a module was executed"
    assert not [name for name in sys.modules if name.partition(".")[0] in {"acme", "acme_zip", "other"}]


def found(pattern: str = "acme.*") -> Found:
    return Allowlist((pattern,)).found(pattern)


def classes(pattern: str = "acme.*") -> set[str]:
    made = Allowlist((pattern,))
    whole = made.found(pattern).classes
    fresh = Allowlist((pattern,))
    assert all(path in fresh for path in whole), "asked one at a time, the answer is the same"
    assert not [path for path in made.found(pattern).left_out if path in fresh]
    return whole


def test_sensors_are_found_by_their_bases_and_by_their_poke(write: Write) -> None:
    write(
        {
            "acme/__init__.py": "",
            "acme/own.py": POKES + "class Many:\n    def poke_many(self): ...\nclass Client:\n    def get(self): ...\n",
            "acme/waits.py": """
                AIRFLOW
                from airflow.sensors.base import BaseSensorOperator as Old
                import airflow.sdk.bases.sensor as module
                import acme.base
                from . import base as near
                from .base import Base as B
                class One(BaseSensorOperator): ...
                class Two(Old): ...
                class Three(module.BaseSensorOperator): ...
                class Four(acme.base.Base): ...
                class Five(near.Base, object): ...
                class Six(B): ...
                class Seven(Six): ...
                Alias = near.Base
                class Eight(Alias): ...
                class Nine(B[int], metaclass=type): ...
                class None_(Exception): ...
            """,
            "acme/base.py": f"{AIRFLOW}class Base(BaseSensorOperator): ...",
            "acme/deep/er/__init__.py": "from ...base import Base\nclass Deep(Base): ...",
        }
    )
    waits = {f"acme.waits.{n}" for n in ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")}
    assert classes() == {"acme.own.Pokes", "acme.own.Many", "acme.base.Base", "acme.deep.er.Deep", *waits}
    assert classes("acme.deep.*") == {"acme.deep.er.Deep"}
    assert classes("acme.own.*") == {"acme.own.Pokes", "acme.own.Many"}
    assert found().left_out == found().unread == {}


def test_a_class_in_a_branch_counts_and_a_nested_or_private_one_does_not(write: Write) -> None:
    write(
        {
            "acme/__init__.py": """
                import sys
                try:
                    from airflow.sdk import BaseSensorOperator
                except ImportError:
                    from not_here_at_all import BaseSensorOperator
                if sys.platform:
                    class Public(BaseSensorOperator): ...
                class _Private(BaseSensorOperator): ...
                class Outer:
                    class Inner(BaseSensorOperator): ...
                def make():
                    class Local(BaseSensorOperator): ...
                class Child(_Private): ...
            """,
            "acme/_hidden.py": POKES,
            "acme/_folder/__init__.py": POKES,
            "acme/shown.py": "from ._hidden import Pokes\nclass Shown(Pokes): ...",
            "acme/wörter.py": POKES,
            "acme/letters.py": "class Größe:\n    def poke(self): ...",
        }
    )
    assert classes() == {"acme.Public", "acme.Child", "acme.shown.Shown"}
    assert "acme._hidden.Pokes" not in Allowlist(("acme.*",))
    assert "acme.Outer.Inner" not in Allowlist(("acme.*",))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("from airflow.providers.standard.sensors.bash import BashSensor as B\nclass X(B): ...", "BashSensor needs"),
        ("from airflow.providers.standard.sensors import python\nclass X(python.PythonSensor): ...", "PythonSensor"),
        ("from airflow.sensors.bash import BashSensor\nclass X(BashSensor): ...", "airflow.sensors.bash.BashSensor"),
        ("import airflow.providers.amazon.aws.sensors.sqs as s\nclass X(s.SqsSensor): ...", "sqs.SqsSensor needs"),
        (
            "from airflow.providers.apache.kafka.sensors.kafka import AwaitMessageSensor as A\nclass X(A): ...",
            "kafka.AwaitMessageSensor needs its exact name",
        ),
        ("from .shell import Shell\nclass X(Shell): ...", "BashSensor needs"),
        ("from .shell import *\nclass X(Shell): ...", "BashSensor needs"),
        (f"{AIRFLOW}from .shell import Shell\nclass X(Shell, BaseSensorOperator): ...", "BashSensor needs"),
        (
            f"{AIRFLOW}from .shell import Shell\nB = BaseSensorOperator\nif 1:\n    B = Shell\nclass X(B):\n    ...",
            "BashSensor needs",
        ),
        ("class X(make()):\n    def poke(self): ...", "worked out when it is imported"),
        ("Base = make()\nclass X(Base):\n    def poke(self): ...", "is not told by a source"),
        ("from .odd import Gone\nclass X(Gone):\n    def poke(self): ...", "is not told by a source"),
        (
            "from not_here_at_all import Base\nclass X(Base):\n    def poke(self): ...",
            "its base Base is not found here",
        ),
        ("from .broken import Base\nclass X(Base):\n    def poke(self): ...", "cannot be read: SyntaxError"),
        ("class X(X):\n    def poke(self): ...", "among its own bases"),
        ("class X(Y):\n    def poke(self): ...\nclass Y(X): ...", "among its own bases"),
        ("A = B\nB = A\nclass X(A):\n    def poke(self): ...", "is not found here"),
        ("class X(*bases):\n    def poke(self): ...", "worked out when it is imported"),
        (f"{POKES}class X(Pokes.Inner):\n    def poke(self): ...", "is not told by a source"),
    ],
)
def test_what_is_in_doubt_or_derived_from_what_runs_commands_needs_its_exact_name(
    write: Write, source: str, why: str
) -> None:
    write({"acme/__init__.py": "", "acme/x.py": source, "acme/broken.py": "class Base(", "acme/odd.py": "x = 1"})
    shell = "from airflow.providers.standard.sensors.bash import BashSensor\nclass Shell(BashSensor): ..."
    write({"acme/shell.py": shell})
    assert "acme.x.X" not in classes()
    left_out = {**found().left_out}
    assert why in left_out["acme.x.X"]
    assert why in Allowlist(("acme.*",)).why_not("acme.x.X")
    assert "acme.x.X" in Allowlist(("acme.*", "acme.x.X")), "its exact name enables it"


def test_mixins_of_airflow_and_of_the_standard_library_are_no_doubt(write: Write) -> None:
    write(
        {
            "acme/__init__.py": "",
            "acme/x.py": """
                AIRFLOW
                from abc import ABC
                from typing import Generic, TypeVar
                from airflow.utils.log.logging_mixin import LoggingMixin
                from airflow.providers.amazon.aws.utils.mixins import AwsHookParams
                from airflow.providers.amazon.aws.sensors.base_aws import AwsBaseSensor
                from airflow.providers.standard.sensors.filesystem import FileSensor
                from airflow.providers.common.compat.sdk import BaseSensorOperator as Compat
                from airflow.sensors.filesystem import FileSensor as OldFile
                from other.mixins import Audit
                T = TypeVar("T")
                class A(LoggingMixin, AwsHookParams, BaseSensorOperator, ABC, Generic[T]): ...
                class B(AwsBaseSensor[T]): ...
                class C(FileSensor): ...
                class D(Audit, Compat): ...
                class E(OldFile): ...
            """,
            "other/mixins.py": "class Audit(dict): ...",
        }
    )
    assert classes() == {f"acme.x.{name}" for name in "ABCDE"}


def test_star_imports_are_followed(write: Write) -> None:
    write(
        {
            "acme/__init__.py": "from os.path import *\nfrom .one import *\nfrom .two import *",
            "acme/one.py": "from airflow.sdk import *\nx = 1",
            "acme/two.py": POKES,
            "acme/x.py": "from acme import *\nclass X(Pokes): ...\nclass Y(BaseSensorOperator): ...",
            "acme/alone.py": "from airflow.sdk import *\nclass Z(BaseSensorOperator): ...",
        }
    )
    assert {"acme.x.X", "acme.alone.Z", "acme.two.Pokes"} <= classes()


def test_odd_files_are_told_and_stop_nothing(write: Write, tmp_path: Path) -> None:
    write({"acme/__init__.py": POKES})
    folder = tmp_path / "acme"
    (folder / "syntax.py").write_text("class X(:\n")
    (folder / "nul.py").write_bytes(b"class X:\n    x = '\0'\n")
    (folder / "coding.py").write_bytes(b"# coding: no-such\nclass X: ...\n")
    (folder / "latin.py").write_bytes("class X:\n    'é'\n".encode("latin-1"))
    (folder / "deep.py").write_text("import x\nx = " + "(" * 5_000)
    (folder / "huge.py").write_text("#" * (4 * 1024 * 1024 + 1))
    (folder / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    (folder / f"fast{__import__('importlib.machinery').machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (folder / "escapes.py").write_text(f"import re\nre.compile('\\d')\n{POKES}")
    (folder / "not-a-name.py").write_text(POKES)
    (folder / "gone.py").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.py")
    (folder / "again").symlink_to(folder)
    told = found()
    assert told.classes == {"acme.Pokes", "acme.escapes.Pokes"} | {c for c in told.classes if ".again" in c}
    assert not [name for name in told.classes if ".again.again" in name], "a folder that holds itself is read once"
    assert told.unread.keys() >= {
        f"acme.{name}" for name in ("syntax", "nul", "coding", "latin", "deep", "huge", "fast")
    }
    assert told.unread["acme.syntax"].startswith("SyntaxError in line 1: ")
    assert "4,194,304 are read" in told.unread["acme.huge"]
    assert told.unread["acme.fast"] == "it has no Python source"
    [line] = Allowlist(("acme.*",)).doubts()
    assert line.startswith("acme.* leaves out what cannot be read: ")
    assert "more" in line
    assert "\n" not in line


def test_a_source_in_another_encoding_is_read(write: Write, tmp_path: Path) -> None:
    write({"acme/__init__.py": ""})
    (tmp_path / "acme" / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n" + f"# é\n{POKES}".encode("latin-1"))
    (tmp_path / "acme" / "mark.py").write_bytes(b"\xef\xbb\xbf" + POKES.encode())
    assert classes() == {"acme.latin.Pokes", "acme.mark.Pokes"}


def test_namespace_packages_in_several_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one", "two"):
        folder = tmp_path / place / "acme" / "sensors" / place
        folder.mkdir(parents=True)
        (folder / "files.py").write_text(POKES)
        monkeypatch.syspath_prepend(str(tmp_path / place))
    assert classes("acme.sensors.*") == {"acme.sensors.one.files.Pokes", "acme.sensors.two.files.Pokes"}
    assert "acme" not in sys.modules


def test_the_folder_in_which_a_process_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ``python -m``: an empty entry of ``sys.path``, also where that folder is gone."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "acme.py").write_text(POKES)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert classes() == {"acme.Pokes"}
    (folder / "acme.py").unlink()
    folder.rmdir()
    assert not found().is_here


def test_older_namespace_packages_in_several_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one", "two"):
        folder = tmp_path / place / "acme"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("__path__ = __import__('pkgutil').extend_path(__path__, __name__)")
        (folder / f"{place}.py").write_text(POKES)
        monkeypatch.syspath_prepend(str(tmp_path / place))
    assert classes() == {"acme.one.Pokes", "acme.two.Pokes"}
    assert "acme" not in sys.modules


def test_packages_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "acme.zip", "w") as archive:
        archive.writestr("acme_zip/__init__.py", "")
        archive.writestr("acme_zip/a/__init__.py", AIRFLOW + "class Base(BaseSensorOperator): ...")
        archive.writestr("acme_zip/a/b.py", "from . import Base\nclass X(Base): ...")
        archive.writestr("acme_zip/broken.py", "class (")
    monkeypatch.syspath_prepend(str(tmp_path / "acme.zip"))
    assert classes("acme_zip.*") == {"acme_zip.a.Base", "acme_zip.a.b.X"}
    assert found("acme_zip.*").unread.keys() == {"acme_zip.broken"}
    (tmp_path / "acme.zip").write_bytes(b"not a zip file any more")
    assert not found("acme_zip.*").classes
    assert "acme_zip" not in sys.modules


def test_an_editable_install_is_found_through_its_finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the finders of setuptools: a mapping of names to folders, no entry of sys.path."""
    from importlib.util import spec_from_file_location

    folder = tmp_path / "src" / "acme"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('executed')")
    (folder / "files.py").write_text(POKES)

    class Finder:
        @classmethod
        def find_spec(cls, fullname: str, path: object = None, target: object = None) -> object:
            if fullname == "odd":
                raise RuntimeError("a finder may raise anything")
            return spec_from_file_location(fullname, folder / "__init__.py") if fullname == "acme" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert classes() == {"acme.files.Pokes"}
    assert not found("odd.*").is_here
    assert "acme" not in sys.modules


@pytest.mark.parametrize("pattern", ["not_here_at_all.*", "acme.not_here.*", "acme.own.Pokes.*", "sys.*", "json.*"])
def test_a_pattern_that_stands_for_nothing_is_told_in_a_line(write: Write, pattern: str) -> None:
    write({"acme/__init__.py": "", "acme/own.py": POKES})
    assert classes(pattern) == set()
    [line] = Allowlist((pattern,)).doubts()
    assert line.startswith(f"{pattern} stands for no class")
    assert line.endswith(("or mend the name", "or mend the pattern"))


def test_modules_that_are_imported_already_are_read_all_the_same(write: Write, tmp_path: Path) -> None:
    """A module without a file or a spec is in sys.modules: what is found follows from files."""
    write({"acme/__init__.py": "", "acme/own.py": POKES})
    sys.modules["acme"] = type(sys)("acme")
    try:
        assert classes() == {"acme.own.Pokes"}
    finally:
        del sys.modules["acme"]


def test_a_file_that_has_changed_is_read_anew(write: Write, tmp_path: Path) -> None:
    write({"acme/__init__.py": "", "acme/own.py": POKES})
    assert classes() == {"acme.own.Pokes"}
    write({"acme/own.py": f"{POKES}class More(Pokes): ...", "acme/new.py": POKES})
    assert classes() == {"acme.own.Pokes", "acme.own.More", "acme.new.Pokes"}


@pytest.mark.parametrize("seed", range(20))
def test_one_at_a_time_or_all_at_once_is_the_same(write: Write, seed: int) -> None:
    """Modules with classes that are derived from one another at random, in circles too."""
    draw = random.Random(seed)
    names = [f"m{n}" for n in range(8)]
    bases = ["BaseSensorOperator", "BashSensor", "dict", "object", "gone", "make()"]
    modules = {"acme/__init__.py": ""}
    for name in names:
        lines = [AIRFLOW, "from airflow.providers.standard.sensors.bash import BashSensor"]
        lines += [f"from .{other} import C{n} as {other}_{n}" for other in names if other != name for n in range(3)]
        for n in range(3):
            of = draw.choice([*bases, *(f"{draw.choice(names)}_{draw.randrange(3)}" for _ in range(6))])
            of = of.partition("_")[2] and f"C{of.partition('_')[2]}" if of.startswith(f"{name}_") else of
            lines.append(f"class C{n}({of}):\n    {draw.choice(['def poke(self): ...', 'x = 1'])}")
        modules[f"acme/{name}.py"] = "\n".join(lines)
    write(modules)
    whole = found().classes
    every = [f"acme.{name}.C{n}" for name in names for n in range(3)]
    draw.shuffle(every)
    one_by_one = Allowlist(("acme.*",))
    assert {path for path in every if path in one_by_one} == whole
    for path in every:
        assert (path in Allowlist(("acme.*",))) == (path in whole), path


def test_functions_that_are_made_sensors_are_found(write: Write) -> None:
    write(
        {
            "acme/__init__.py": "",
            "acme/functions.py": """
                import sensorpool
                import sensorpool as pool
                from sensorpool import sensor as waits
                from functools import cache

                @sensorpool.sensor
                def one(x): ...

                @pool.sensor
                async def two(): ...

                @waits
                def three(): ...

                @sensorpool.sensor
                def _private(): ...

                @cache
                @waits
                def wrapped(): ...

                @other.sensor
                def unknown(): ...

                def plain(): ...
            """,
        }
    )
    assert classes() == {f"acme.functions.{name}" for name in ("one", "two", "three")}
