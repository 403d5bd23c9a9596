"""The twelve sensors that are used most. Each waits for what a day's run needs."""

from datetime import datetime, timedelta

from airflow.providers.amazon.aws.sensors.glue_catalog_partition import GlueCatalogPartitionSensor
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.apache.hive.sensors.named_hive_partition import NamedHivePartitionSensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.google.cloud.sensors.bigquery import BigQueryTablePartitionExistenceSensor
from airflow.providers.google.cloud.sensors.gcs import GCSObjectExistenceSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.redis.sensors.redis_key import RedisKeySensor
from airflow.providers.sftp.sensors.sftp import SFTPSensor
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.date_time import DateTimeSensor
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG

with DAG(
    "twelve_sensors",
    schedule="@daily",
    start_date=datetime(2030, 1, 1),
    catchup=False,
    default_args={"poke_interval": timedelta(minutes=1), "timeout": timedelta(hours=12)},
) as dag:
    day = "{{ ds }}"
    waits = [
        FileSensor(task_id="file", filepath=f"/data/{day}/_SUCCESS"),
        S3KeySensor(task_id="s3_key", bucket_name="lake", bucket_key=f"orders/{day}/_SUCCESS"),
        GCSObjectExistenceSensor(task_id="gcs_object", bucket="lake", object=f"orders/{day}/_SUCCESS"),
        SFTPSensor(task_id="sftp", path=f"/outgoing/{day}.csv"),
        HttpSensor(task_id="http", endpoint=f"deliveries/{day}", http_conn_id="partner"),
        SqlSensor(
            task_id="sql",
            conn_id="warehouse",
            sql="SELECT count(*) FROM loads WHERE day = %(day)s",
            parameters={"day": day},
        ),
        NamedHivePartitionSensor(task_id="hive_partition", partition_names=[f"default.orders/day={day}"]),
        GlueCatalogPartitionSensor(task_id="glue_partition", table_name="orders", expression=f"day='{day}'"),
        BigQueryTablePartitionExistenceSensor(
            task_id="bigquery_partition",
            project_id="shop",
            dataset_id="lake",
            table_id="orders",
            partition_id="{{ ds_nodash }}",
        ),
        RedisKeySensor(task_id="redis_key", key=f"orders:{day}", redis_conn_id="cache"),
        ExternalTaskSensor(task_id="other_dag", external_dag_id="orders", external_task_id="loaded"),
        DateTimeSensor(task_id="six_o_clock", target_time="{{ data_interval_end.replace(hour=6) }}"),
    ]
    waits >> EmptyOperator(task_id="all_there")
