"""A Spark job in cluster mode."""

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("spark", schedule=None):
    SparkSubmitOperator(task_id="submit", application="job.py", application_args=["{{ run_id }}"], retries=0)
