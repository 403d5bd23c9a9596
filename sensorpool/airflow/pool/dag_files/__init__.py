"""Sensors of DAG files, in the pool: each version of a bundle has a process that loads its files and pokes them."""

import json
from collections.abc import Mapping
from typing import Any

from sensorpool.airflow.compat import dag_bundles
from sensorpool.airflow.pool.dag_files.bundle_key import BundleKey
from sensorpool.airflow.pool.dag_files.processes import processes
from sensorpool.airflow.proof.arguments import dag_file, external_inputs
from sensorpool.errors import HandBack
from sensorpool.model.states import Outcome
from sensorpool.model.values import PokeReturnValue
from sensorpool.poke.answer import Reported


class DagFileSensor:
    """Stands in for a sensor whose class or function is defined in a DAG file. To list it lets the pool run DAG code.

    :param bundle: the name of a bundle that Airflow's configuration has here.
    :param version: its version, a plain name; None for a bundle without versions.
    :param path: of the DAG file, relative to the bundle and within it.
    :param rest: what `sensorpool.airflow.proof.arguments.dag_file` says beside these.
    """

    __slots__ = ("_bundle", "_path", "_poke_context")

    def __init__(self, *, bundle: str, version: str | None, path: str, **rest: Any) -> None:
        self._bundle = BundleKey(bundle, version, external_inputs.team_of(rest.get(dag_file.ARGUMENTS) or {}))
        self._path = path
        self._poke_context = json.dumps(rest)

    def poke(self, _: Mapping[str, Any]) -> Any:
        """Have the bundle's process poke.

        :raises Reported: what that process says, if it is no answer.
        :raises HandBack: when there is no such file or process, and when the poke has ended one.
        :raises InfraFailure: when the process is not ready yet.
        """
        why = dag_bundles.reason_against(self._bundle.version, self._path)
        if why is None and self._bundle.name not in dag_bundles.configured():
            why = f"its DAG bundle {self._bundle.name} is not configured in the pool"
        if why is not None:
            raise HandBack(why)
        report = processes().poke(self._bundle, self._path, self._poke_context)
        if report.outcome is Outcome.LANDED:
            return PokeReturnValue(True, None if report.xcom_value is None else json.loads(report.xcom_value))
        if report.outcome is Outcome.NOT_LANDED:
            return False
        raise Reported(report.outcome, report.reason, report.trace, report.quiet_for)
