"""The shared call of PathSensor against its own poke: what a look at a folder says no to, no poke finds."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from sensorpool.poke.shared_files import FEWEST, Folders
from sensorpool.sensors import PathSensor

NAMES = st.text("aAü\u0308u. *", min_size=1, max_size=3)  # the two spellings of an umlaut, a dot, a pattern
KINDS = st.sampled_from(["file", "folder", "broken link", "link"])


@given(st.dictionaries(NAMES, KINDS, max_size=12), st.lists(NAMES, min_size=FEWEST, max_size=40))
@settings(deadline=None, database=None, max_examples=200)
def test_a_folder_says_no_to_nothing_that_a_poke_finds(there: dict[str, str], names: list[str]) -> None:
    with TemporaryDirectory() as folder:
        for name, kind in there.items():
            path = Path(folder, name)
            if os.path.lexists(path):  # "." and "..", and what a file system takes for the same name
                continue
            if kind == "file":
                path.touch()
            elif kind == "folder":
                path.mkdir()
            else:
                path.symlink_to(folder if kind == "link" else "/nowhere")
        call = Folders()
        questions = {path: call.question({"path": path}) for path in (f"{folder}/{name}" for name in [*there, *names])}
        asked = {path: question for path, question in questions.items() if question is not None}
        assert {question.kin for question in asked.values()} <= {folder}
        answers = call.ask(folder, [question.asked for question in asked.values()])
        found = [PathSensor(path).poke({}) for path in asked]
        assert not [
            path for path, may_be, is_there in zip(asked, answers, found, strict=True) if is_there and not may_be
        ]
