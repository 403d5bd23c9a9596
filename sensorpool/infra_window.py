"""Infrastructure failures are retried for a window before they count (AIP-17's infra_failure_retry_window). Pure."""

from collections.abc import MutableMapping

from sensorpool.model import Fact, Milliseconds
from sensorpool.states import Outcome


def within_window(fact: Fact, since: MutableMapping[str, Milliseconds], window: float) -> Fact:
    """Hold a fact against the window of its group: a failure that has lasted for longer is the poke's error.

    :param since: when the failures that go on began, by group id; kept up to date.
    :param window: seconds.
    """
    name = str(fact.group_id)
    if fact.outcome is not Outcome.INFRA_FAILURE:
        since.pop(name, None)
        return fact
    if fact.began_at - since.setdefault(name, fact.began_at) < window * 1000:
        return fact
    since.pop(name)
    reason = f"{fact.reason} (for longer than {window:g} s)"
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.POKE_ERROR, reason)
