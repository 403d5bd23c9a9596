"""The process of a bundle: it loads DAG files and pokes their sensors, for its parent, a process of the pool.

It is no server of Airflow's: it has neither Airflow's database nor its fernet key.
"""

from typing import Any

from sensorpool.airflow.compat import dag_bundles
from sensorpool.poke.child_main import Messages, Tell, serve
from sensorpool.poke.classes import Classes


def _prepare(settings: dict[str, Any], tell: Tell) -> tuple[Classes, Messages]:
    dag_bundles.block_database()
    # imports Airflow, after the environment is known to be that of a client
    from sensorpool.airflow.compat import server_process
    from sensorpool.airflow.pool.adapters import sensor
    from sensorpool.airflow.pool.dag_files.loaded_files import LoadedFiles
    from sensorpool.airflow.pool.dag_files.lookups import Questions, Unanswered
    from sensorpool.airflow.proof.watch import supervisor_requests

    server_process.log_as_the_pool()
    questions = Questions(tell, settings["team"])
    supervisor_requests.stand_in(questions.look_up, lambda error: isinstance(error, Unanswered))
    sensor.watch_process()
    return LoadedFiles(settings["bundle"], settings["version"], questions), questions.hear


if __name__ == "__main__":
    serve(_prepare)
