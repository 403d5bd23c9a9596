"""An auth manager with users who may see, or change, the tasks of some DAGs only, as that of Airflow's FAB has."""

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

ROLES = {
    "admin": "admin",
    "viewer": "viewer",
    "clerk": "user",
    "accountant": "viewer",
    "stranger": None,
    "auditor": "user",
}
DAGS = {"clerk": {"orders"}, "accountant": {"billing"}}  # the only ones of these users
# who may see each DAG, and the task instances of these DAGs only: as the policies of Amazon's auth manager can say
TASKS = {"auditor": {"orders"}}


class AuthByName(SimpleAuthManager):
    """Roles as of Airflow's simple auth manager; some users have them for some DAGs only, and may not see its jobs."""

    def is_authorized_dag(self, *, user: SimpleAuthManagerUser, details: Any = None, **more: Any) -> bool:
        """Whether a user may do something with a DAG; without one: with any."""
        if details is None or details.id is None:
            # with rights for some DAGs only there is none for all, as in Airflow's FAB provider
            is_narrow = user.username in DAGS and more.get("access_entity") is not None
            return not is_narrow and bool(super().is_authorized_dag(user=user, details=details, **more))
        if details.id not in DAGS.get(user.username, {details.id}):
            return False
        if more.get("access_entity") is not None and details.id not in TASKS.get(user.username, {details.id}):
            return False
        return bool(super().is_authorized_dag(user=user, details=details, **more))

    def is_authorized_view(self, *, access_view: AccessView, user: SimpleAuthManagerUser) -> bool:
        """Whether a user may see a view."""
        return user.username not in DAGS and bool(super().is_authorized_view(access_view=access_view, user=user))


def user(name: str) -> SimpleAuthManagerUser:
    """Return a user."""
    return SimpleAuthManagerUser(username=name, role=ROLES[name])
