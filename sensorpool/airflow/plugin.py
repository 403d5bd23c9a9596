"""The plugin of Airflow's UI: the entry point ``airflow.plugins``.

Every process of Airflow loads it, so it builds nothing: `ui.late_pages` makes the pages at the first request for one.
It brings no listener and no operator link: with one of either, Airflow's triggerer ends no task by itself.
"""

from typing import Any, ClassVar
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

_PREFIX = "/sensorpool"
# `[api] base_url` may have a path, which is before all addresses
_HERE = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + _PREFIX
_RUN = "dag_id={DAG_ID}&run_id={RUN_ID}"


class _Pages:
    """The application that Airflow's API server mounts. Belongs to one process.

    :ivar pages: what answers, once there was a request.
    """

    def __init__(self) -> None:
        self.pages: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if self.pages is None:
            from sensorpool.airflow.ui.late_pages import LatePages

            self.pages = self.pages or LatePages()
        await self.pages(scope, receive, send)


class SensorpoolPlugin(AirflowPlugin):
    """The pool's pages, in Airflow's UI."""

    name = "sensorpool"
    fastapi_apps: ClassVar[list[Any]] = [{"name": name, "app": _Pages(), "url_prefix": _PREFIX}]
    external_views: ClassVar[list[Any]] = [
        {
            "name": "Sensor pool",
            "href": f"{_HERE}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "sensor-pool",
        },
        {
            "name": "Sensors",
            "href": f"{_HERE}/run?{_RUN}&embedded=1",
            "destination": "dag_run",
            "url_route": "sensor-pool-of-run",
        },
        {
            "name": "Waits for",
            "href": f"{_HERE}/task?{_RUN}&task_id={{TASK_ID}}&map_index={{MAP_INDEX}}&embedded=1",
            "destination": "task_instance",
            "url_route": "sensor-pool-of-task",
        },
    ]
