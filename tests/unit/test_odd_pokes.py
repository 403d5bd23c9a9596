"""Sensors whose attributes raise another exception than AttributeError: they cost their own group or class."""

from typing import Any, ClassVar

import pytest

from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.errors import ClassUnavailable
from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.classes import Classes
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import Renewable
from tests.support.builders import classpath, due_group


class Odd:
    """A callable whose other attributes raise."""

    def __call__(self, context: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class MadeOdd:
    """A sensor whose instances have such a poke."""

    def __init__(self) -> None:
        self.poke = Odd()

    def poke(self, context: Any) -> bool:  # type: ignore[no-redef]
        return True


class OfOdd:
    """A sensor whose class has such a poke."""

    poke: ClassVar[Any] = Odd()


class RenewsNot(Renewable):
    """A sensor that cannot be renewed."""

    def poke(self, context: Any) -> bool:
        return False

    def renew(self) -> None:
        raise SystemExit("no")


@pytest.mark.parametrize("cls", [MadeOdd, RenewsNot])
def test_another_waiter_joins_all_the_same(cls: type) -> None:
    cache = Cache(10, PokeTools(Classes([classpath(cls)]), Answers(INFRA_FAILURES), {}))
    one = cache.keep(due_group(1), classpath(cls), "{}")
    for version in (2, 3):
        [report] = one.poke()
        assert report.outcome is Outcome.NOT_LANDED
        assert cache.keep(due_group(1, version=version), classpath(cls), "{}") is one
        assert one.group.version == version


def test_a_class_that_cannot_be_read_cannot_be_poked() -> None:
    with pytest.raises(ClassUnavailable, match=r"OfOdd cannot be poked here: KeyError: '\w+'"):
        Classes([classpath(OfOdd)]).find(classpath(OfOdd))
