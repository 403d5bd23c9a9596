"""What an attack would leave behind: a file, written by code that must never run."""

import pickle
from pathlib import Path
from typing import Any

MODULE = "canary_at_import"
_CODE = """
import pathlib

pathlib.Path({path!r}).write_text("imported")


class Canary:
    def __init__(self, **context):
        pathlib.Path({path!r}).write_text("constructed")

    def poke(self, context):
        pathlib.Path({path!r}).write_text("poked")
        return True

    class Inner:
        def poke(self, context):
            return True
"""


class Canary:
    """The file, a module on ``PYTHONPATH`` that writes it, and a pickle that does.

    :param folder: of the test; the module lies in it, so that a worker could import it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "canary"
        self.folder = folder
        (folder / f"{MODULE}.py").write_text(_CODE.format(path=str(self.path)))

    @property
    def environment(self) -> dict[str, str]:
        """What makes the module importable for a process."""
        import os

        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))}

    @property
    def command(self) -> str:
        """A shell command that writes it."""
        return f"touch {self.path}"

    @property
    def is_untouched(self) -> bool:
        """Whether no attack worked."""
        return not self.path.exists()

    def pickled(self) -> bytes:
        """A pickle that writes it when it is read."""
        return pickle.dumps(_Reduced(str(self.path)))


class _Reduced:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return open, (self._path, "w")
