"""Lookups of Connections and Variables by a process that runs DAG code: its parent, one of the pool, answers them.

So the process needs neither Airflow's database nor its fernet key. It asks the secrets backends of a worker by itself,
as a worker's task does.
"""

import itertools
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from sensorpool.airflow.compat import secrets_backends
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.child_main import Tell

_PATIENCE = 30.0  # seconds until a question without an answer counts as one that cannot be answered now


class Unanswered(Exception):
    """The parent cannot look it up now."""


class Questions:
    """The questions of this process to its parent. Safe to share between threads.

    :param tell: sends a message to the parent.
    :param team: that of all tasks of the bundle; None: of no team.
    """

    def __init__(self, tell: Tell, team: str | None = None) -> None:
        self.unanswered = 0  # questions so far
        self._tell = tell
        self._team = team
        self._numbers = itertools.count()
        self._open: dict[int, SimpleQueue[dict[str, Any]]] = {}

    def look_up(self, message: Any, _: str | None = None) -> Any:
        """Return the parent's answer to a lookup; None if nothing is found.

        A bundle looks its own Connection up, and a file others while it is loaded: no poke of a team is under way then.

        :raises Unanswered: when it cannot be answered now.
        :raises LookupError: when the parent cannot answer it at all.
        """
        number, answers = next(self._numbers), SimpleQueue[dict[str, Any]]()
        self._open[number] = answers
        try:
            self._tell({"question": number, **secrets_backends.as_question(message, self._team)})
            answer = answers.get(timeout=_PATIENCE)
        except Empty:
            self.unanswered += 1
            raise Unanswered(f"no answer in {_PATIENCE:g} s") from None
        finally:
            self._open.pop(number, None)
        if "away" in answer:
            self.unanswered += 1
            raise Unanswered(answer["away"])
        if "error" in answer:
            raise LookupError(answer["error"])
        return secrets_backends.as_answer(message, answer["found"])

    def hear(self, answer: dict[str, Any]) -> None:
        """Take an answer of the parent."""
        answers = self._open.get(answer.get("answer", -1))
        if answers is not None:
            answers.put(answer)


def answer(question: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Answer a question of a child, on a thread of its own: the database may be slow.

    :param say: sends a message to the child.
    """
    try:
        threading.Thread(target=lambda: say(_answer_to(question)), daemon=True, name="dag-file-lookup").start()
    except RuntimeError as error:  # no thread can be started
        say({"answer": question["question"], "away": str(error)})


def _answer_to(question: dict[str, Any]) -> dict[str, Any]:
    number = {"answer": question["question"]}
    try:
        found = secrets_backends.look_up(*secrets_backends.as_message(question))
        return {**number, "found": secrets_backends.as_json(found)}
    except Exception as error:
        return {**number, "away" if secrets_backends.is_database_away(error) else "error": one_line(error)}
