"""Who may see and do what on the pages: what Airflow's auth manager lets its users do with the DAGs that wait."""

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from sensorpool.web.access import Denied, Reader


class Permissions:
    """Lets in whom Airflow lets see task instances; what changes a wait asks for what changes a task instance."""

    def reader(self, user: GetUserDep) -> Reader:
        """Return who asks. Airflow's own dependency finds the user, by the session of its UI or a bearer token.

        :raises Denied: when the user may see no task instances.
        """
        manager = get_auth_manager()
        if not manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.TASK_INSTANCE, user=user):
            raise Denied("Airflow does not let you see task instances")
        there = _all_dags()
        seen = manager.get_authorized_dag_ids(user=user, method="GET")
        changed: set[str] = set()
        if manager.is_authorized_dag(method="PUT", access_entity=DagAccessEntity.TASK_INSTANCE, user=user):
            changed = manager.get_authorized_dag_ids(user=user, method="PUT") & seen
        watches = manager.is_authorized_view(access_view=AccessView.JOBS, user=user)
        sees_all, changes_all = (bool(there) and some >= there for some in (seen, changed))
        return Reader(
            name=user.get_name(),
            seen=None if sees_all else frozenset(seen),
            changed=None if changes_all else frozenset(changed),
            operates=watches and sees_all and changes_all,
            watches=watches,
        )


def _all_dags() -> set[str]:
    with create_session() as session:
        return set(session.scalars(select(DagModel.dag_id)))
