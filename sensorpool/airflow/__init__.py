"""sensorpool in Apache Airflow 3.3: sensors leave their worker slots, and no DAG file changes.

The path of one sensor task::

    worker      `policy` patches BaseSensorOperator (`intercept`); its execute (`sensor_task`) asks `poolable`, pokes
                once, registers, and defers to a `trigger`
    pool        builds the sensor again from its arguments (`rebuild`, `adapters`) and pokes it for all who wait for it
    triggerer   one `hub` hears of all results; each trigger ends its task, or has it resume on a worker
    worker      `finish` returns or raises what the pool saw, so that callbacks, retries and outlets are Airflow's own

This is the only folder that imports airflow. What it uses of Airflow under private names stands in `compat`.
"""
