"""Who may see and do what on the pages: what Airflow's auth manager lets users do with the task instances of a DAG."""

from typing import Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from sensorpool.web.access import Reader

_Method = Literal["GET", "PUT"]


class Permissions:
    """Has Airflow's auth manager asked: for each DAG whose tasks a page would name, and for each that is acted on."""

    def reader(self, user: GetUserDep) -> Reader:
        """Return who asks. Airflow's own dependency finds the user, by the session of its UI or a bearer token."""
        watches = get_auth_manager().is_authorized_view(access_view=AccessView.JOBS, user=user)
        oversees = watches and _of_all(user, "GET")
        return Reader(
            name=user.get_name(),
            seen=_Dags(user, "GET"),
            changed=_Dags(user, "PUT"),
            operates=oversees and _of_all(user, "PUT"),
            watches=watches,
            oversees=oversees,
        )


class _Dags:
    """The DAGs whose task instances a user may see, or change. Each is asked for once; belongs to one request."""

    def __init__(self, user: Any, method: _Method) -> None:
        self._user = user
        self._method = method
        self._known: dict[str, bool] = {}

    def __contains__(self, dag_id: object) -> bool:
        """Ask Airflow, as it does itself before it shows or changes a task instance."""
        name = str(dag_id)
        if name not in self._known:
            self._known[name] = get_auth_manager().is_authorized_dag(
                method=self._method,
                access_entity=DagAccessEntity.TASK_INSTANCE,
                details=_details(name),
                user=self._user,
            )
        return self._known[name]


def _details(dag_id: str) -> DagDetails:
    """Return what auth managers go by: the DAG, and its team where an Airflow has teams."""
    if not conf.getboolean("core", "multi_team", fallback=False):
        return DagDetails(id=dag_id)
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))


def _of_all(user: Any, method: _Method) -> bool:
    """Whether a user may see, or change, the task instances of all DAGs: by a right that names none, and in fact."""
    manager = get_auth_manager()
    if not manager.is_authorized_dag(method=method, access_entity=DagAccessEntity.TASK_INSTANCE, user=user):
        return False
    with create_session() as session:
        there = set(session.scalars(select(DagModel.dag_id)))
    return bool(there) and bool(manager.get_authorized_dag_ids(user=user, method=method) >= there)
