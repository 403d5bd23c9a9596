"""sensorpool in Apache Airflow 3.3: sensors leave their worker slots, and no DAG file changes.

The path of one sensor task::

    worker      `policy` patches BaseSensorOperator (`task.patch`); its execute (`task.sensor_task`) asks
                `task.poolable`, pokes once, registers, and defers to a `trigger`
    pool        builds the sensor again from its arguments (`proof.rebuild`, `pool.adapters`), and pokes it for all
    triggerer   one `triggerer.notifier` hears of all results; each trigger ends its task, or has it resume on a worker
    worker      `task.conclude` returns or raises what the pool saw: callbacks, retries and outlets are Airflow's own

This is the only folder that imports airflow. What it uses of Airflow under private names stands in `compat`.
"""
