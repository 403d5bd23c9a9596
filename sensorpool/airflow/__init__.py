"""sensorpool in Apache Airflow 3: sensors leave their worker slots, and no DAG file changes.

The path of one sensor task::

    worker      `policy` patches BaseSensorOperator (`task.patch`); its execute is `task.sensor_task`:
                `task.poolable` (with `proof`), `task.first_poke`, `task.deferral` (register and defer)
    pool        `pool.adapters` build the sensor again from its arguments (`proof.arguments`), and poke it for all tasks
    triggerer   `trigger` waits; the one `triggerer.notifier` tells it the result: it ends the task, or resumes it
    worker      `task.conclude` returns or raises the result: callbacks, retries and outlets are Airflow's own

This is the only folder that imports airflow. `compat` has all that is used of Airflow under private names.
"""
