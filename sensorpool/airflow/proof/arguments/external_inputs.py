"""External inputs of a constructor, beside its arguments: a Variable, today's date, the environment, a file.

Sensors with equal arguments may have other inputs. So the poke_context has a digest of each attribute that is no
argument, under the name of an argument that every operator takes and no poke reads; so the inputs are part of the
identity. Digests of the class's shared state (`shared_state`), of a module's constant for example, stand there too, the
order of mappings (`mapping_order`), and of the first poke its missing lookups (`missing_lookups`) and the state of
companies' hooks (`company_hooks`). The pool, whose process may have inputs that the worker lacks, compares
(`differing_attribute`, `hooks_in_pool`); so the argument is there even if empty. A task of a team (`[core] multi_team`)
has a word for it: its Connections and Variables are those of its team.

A stateless class (`known_sensors`) has no digests of its own.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import mapping_order
from sensorpool.airflow.proof.codec import encode
from sensorpool.airflow.proof.state import constants, shared_state, value_digest
from sensorpool.airflow.proof.state.judged_class import judged_class_of
from sensorpool.airflow.proof.watch import company_hooks, missing_lookups

NAME = "doc"
_PRIVATE = re.compile(r"^(_\w+?__|_+)")
_TEAM = "(team)="


def extra_arguments(operator: BaseOperator, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the argument to add to those of an operator, encoded: its digests, and the order of its mappings.

    :param operator: just built from the arguments.
    """
    words = [*_own_words(operator, arguments), *_words(_shared(operator))]
    return {} if not words and known_sensors.is_stateless(judged_class_of(operator)) else {NAME: " ".join(words)}


def with_current_shared_state(operator: BaseOperator, poke_context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a poke_context with the shared state of its class as it is now: the poke may have imported more."""
    before, digests = poke_context.get(NAME), _shared(operator)
    if before is None or not digests:
        return dict(poke_context)
    words = [word for word in str(before).split() if not _is_shared(word)]
    return {**poke_context, NAME: " ".join([*words, *_words(digests)])}


def with_team(poke_context: Mapping[str, Any], team: str | None) -> dict[str, Any]:
    """Return a poke_context whose Connections and Variables are those of a team; None: of no team."""
    if team is None:
        return dict(poke_context)
    return {**poke_context, NAME: " ".join([*str(poke_context.get(NAME, "")).split(), _TEAM + team])}


def team_of(poke_context: Mapping[str, Any]) -> str | None:
    """Return the team of `with_team`; None if there is none."""
    return next(
        (word.removeprefix(_TEAM) for word in str(poke_context.get(NAME, "")).split() if word.startswith(_TEAM)), None
    )


def says_team_alone(poke_context: Mapping[str, Any]) -> bool:
    """Whether a poke_context says of its external inputs just a team."""
    words = str(poke_context.get(NAME, "")).split()
    return len(words) == 1 and words[0].startswith(_TEAM)


def reordered(poke_context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a poke_context with its mappings in their registered order.

    :raises ValueError: when that order is of another poke_context.
    """
    return mapping_order.restore(poke_context, str(poke_context.get(NAME, "")))


def differing_attribute(operator: BaseOperator, poke_context: Mapping[str, Any]) -> str | None:
    """Return the name of an attribute in which an operator differs from the registered one; None if there is none."""
    registered = poke_context.get(NAME)
    if registered is None:  # registered by hand
        return None
    arguments = {name: value for name, value in reordered(poke_context).items() if name != NAME}
    words = str(registered).split()
    differing = {word for word in words if not _is_of_others(word) and not word.startswith(_TEAM)} ^ set(
        _own_words(operator, arguments)
    )
    return min(differing).partition("=")[0] if differing else None


def with_first_poke(
    poke_context: Mapping[str, Any],
    names: Collection[str] | None,
    of_environment: Collection[str] = (),
    hooks: Iterable[type] = (),
) -> dict[str, Any]:
    """Return a poke_context that says what its first poke found.

    :param names: the Connections and Variables that it did not find; None if there was no first poke.
    :param of_environment: those that it found in the environment.
    :param hooks: the classes of companies' hooks that it got.
    """
    parts = (
        str(poke_context.get(NAME, "")),
        missing_lookups.as_word(names),
        missing_lookups.environment_as_word(of_environment),
        *_words(company_hooks.digests(hooks)),
    )
    words = " ".join(filter(None, parts))
    return {**poke_context, NAME: words} if words else dict(poke_context)


def with_first_poke_of(poke_context: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a poke_context with what the first poke of another sensor of its class found.

    That is the state that all sensors of the class share, and the hooks and lookups of the poke.
    """
    own = [word for word in str(poke_context.get(NAME, "")).split() if not _is_of_others(word)]
    found = [word for word in str(other.get(NAME, "")).split() if _is_of_others(word)]
    if NAME not in poke_context and not found:
        return dict(poke_context)
    return {**poke_context, NAME: " ".join([*own, *found])}


def has_digests(poke_context: Mapping[str, Any]) -> bool:
    """Whether a poke_context has a digest of an external input."""
    words = str(poke_context.get(NAME, "")).split()
    return any(not missing_lookups.is_word(word) and not _is_no_digest(word) for word in words)


def own_digests_of(poke_context: Mapping[str, Any]) -> str:
    """Return the digests of a sensor's attributes that are none of its arguments, as one text."""
    words = str(poke_context.get(NAME, "")).split()
    return " ".join(sorted(word for word in words if not _is_of_others(word) and not _is_no_digest(word)))


def missing_lookups_of(poke_context: Mapping[str, Any]) -> frozenset[str] | None:
    """Return digests of the Connections and Variables that a poke may do without; None if there was no first poke."""
    return missing_lookups.read(str(poke_context.get(NAME, "")))


def lookups_in_environment(poke_context: Mapping[str, Any]) -> frozenset[str]:
    """Return digests of the Connections and Variables that the first poke found in the environment of its worker."""
    return missing_lookups.read_environment(str(poke_context.get(NAME, "")))


def hooks_of(poke_context: Mapping[str, Any]) -> Mapping[str, str]:
    """Return digests of the state of the companies' hooks that the first poke got."""
    return company_hooks.read_digests(str(poke_context.get(NAME, "")))


def differing_shared_state(operator: BaseOperator, poke_context: Mapping[str, Any]) -> str | None:
    """Return the name of a part of the shared state that differs from the registered one; None if none does."""
    pairs = (word.partition("=") for word in str(poke_context.get(NAME, "")).split() if _is_shared(word))
    return shared_state.differing(judged_class_of(operator), {name: digest for name, _, digest in pairs})


def _own_words(operator: BaseOperator, arguments: Mapping[str, Any]) -> list[str]:
    judged = judged_class_of(operator)
    needs_order = known_sensors.needs_order(type(operator)) or known_sensors.needs_order(judged)
    in_order = mapping_order.as_word(arguments) if needs_order else ""
    found = [in_order] if in_order else []
    if known_sensors.is_stateless(judged):
        return found
    digests = {
        name: value_digest.digest(value_digest.canonical_json(value))
        for name, value in constants.own_data(operator).items()
        if value is not None and not _is_argument(name, value, arguments)
    }
    return found + _words(digests)


def _words(digests: Mapping[str, str]) -> list[str]:
    return [f"{name}={digests[name]}" for name in sorted(digests)]


def _is_of_others(word: str) -> bool:
    """Whether a word says something else than the operator's own state."""
    return _is_shared(word) or company_hooks.is_word(word) or missing_lookups.is_word(word)


def _is_no_digest(word: str) -> bool:
    return mapping_order.is_word(word) or word.startswith(_TEAM)


def _is_shared(word: str) -> bool:
    return shared_state.is_digest_name(word.partition("=")[0]) and not company_hooks.is_word(word)


def _shared(operator: BaseOperator) -> dict[str, str]:
    without = {name for name, _ in constants.class_constants(type(operator))}
    return shared_state.digests(judged_class_of(operator), without)


def _is_argument(name: str, value: Any, arguments: Mapping[str, Any]) -> bool:
    public = _PRIVATE.sub("", name)
    try:
        return public in arguments and json.dumps(arguments[public]) == json.dumps(encode(value))
    except Exception:  # no JSON can hold it, or its class is odd
        return False
