"""Sensors of the providers that look poolable and are not, found in a review of each provider's sensors.

Other sensors of the reviewed providers are proved one by one on the worker; sensors of other packages are also watched
at their first poke (`task.first_poke`). An entry holds for the class and for all classes derived from it. A class with
AIP-17's ``poke_context_fields`` declares that its answer depends on these alone.
"""

from typing import Any

from sensorpool.airflow.compat import operators

_PROVIDERS = "airflow.providers."
_REVIEWED = ("amazon", "apache.hive", "celery", "common.sql", "ftp", "google", "http", "redis", "sftp", "standard")
_ON_EARLIER = "its answer builds on earlier pokes"
_BEFORE = "its execute prepares what its poke needs"

NOT_POOLABLE = {
    "amazon.aws.sensors.s3.S3KeysUnchangedSensor": _ON_EARLIER,
    "amazon.aws.sensors.sqs.SqsSensor": "its poke takes messages",
    "celery.sensors.celery_queue.CeleryQueueSensor": "its poke asks the task runner for XComs",
    "google.cloud.sensors.cloud_composer.CloudComposerDAGRunSensor": _BEFORE,
    "google.cloud.sensors.cloud_composer.CloudComposerExternalTaskSensor": _BEFORE,
    "google.cloud.sensors.dataplex.DataplexDataProfileJobStatusSensor": _ON_EARLIER,
    "google.cloud.sensors.dataplex.DataplexDataQualityJobStatusSensor": _ON_EARLIER,
    "google.cloud.sensors.dataproc_metastore.MetastoreHivePartitionSensor": "its poke asks for its timeout",
    "google.cloud.sensors.gcs.GCSUploadSessionCompleteSensor": _ON_EARLIER,
    "google.cloud.sensors.pubsub.PubSubPullSensor": "its poke takes messages, and its execute works with them",
    "redis.sensors.redis_pub_sub.RedisPubSubSensor": _ON_EARLIER,
    "standard.sensors.bash.BashSensor": "its command sees the environment of its worker, where Airflow names the task",
}
# its execute fetches the notebook's output after its base's has returned: it always ends on a worker
WORKS_AFTERWARDS = frozenset(
    {f"{_PROVIDERS}amazon.aws.sensors.sagemaker_unified_studio_notebook.SageMakerUnifiedStudioNotebookSensor"}
)
# with deferrable=True they end as without: their execute, and the method by which they resume, return no value for XCom
_ENDS_ALIKE = frozenset(
    f"{_PROVIDERS}{name}"
    for name in (
        "amazon.aws.sensors.batch.BatchSensor",
        "amazon.aws.sensors.dynamodb.DynamoDBValueSensor",
        "amazon.aws.sensors.ec2.EC2InstanceStateSensor",
        "amazon.aws.sensors.emr.EmrServerlessJobSensor",
        "amazon.aws.sensors.glue.GlueDataQualityRuleRecommendationRunSensor",
        "amazon.aws.sensors.glue.GlueDataQualityRuleSetEvaluationRunSensor",
        "amazon.aws.sensors.glue.GlueJobSensor",
        "amazon.aws.sensors.glue_catalog_partition.GlueCatalogPartitionSensor",
        "amazon.aws.sensors.mwaa.MwaaDagRunSensor",
        "amazon.aws.sensors.quicksight.QuickSightSensor",
        "amazon.aws.sensors.redshift_cluster.RedshiftClusterSensor",
        "amazon.aws.sensors.s3.S3KeySensor",
        "amazon.aws.sensors.ssm.SsmRunCommandCompletedSensor",
        "google.cloud.sensors.cloud_sql.CloudSQLNoOperationInProgressSensor",
        "http.sensors.http.HttpSensor",
        "sftp.sensors.sftp.SFTPSensor",
        "standard.sensors.external_task.ExternalTaskSensor",
        "standard.sensors.filesystem.FileSensor",
        "standard.sensors.time.TimeSensor",
    )
)
_RETURNS_MESSAGE, _RETURNS_POKE = "it returns the message of its trigger", "it returns what its poke returns"
_ENDS_OTHERWISE = {
    "amazon.aws.sensors.bedrock.BedrockBatchInferenceSensor": _RETURNS_POKE,
    "amazon.aws.sensors.bedrock.BedrockCustomizeModelCompletedSensor": _RETURNS_POKE,
    "amazon.aws.sensors.bedrock.BedrockIngestionJobSensor": _RETURNS_POKE,
    "amazon.aws.sensors.bedrock.BedrockKnowledgeBaseActiveSensor": _RETURNS_POKE,
    "amazon.aws.sensors.bedrock.BedrockProvisionModelThroughputCompletedSensor": _RETURNS_POKE,
    "amazon.aws.sensors.comprehend.ComprehendCreateDocumentClassifierCompletedSensor": _RETURNS_POKE,
    "amazon.aws.sensors.comprehend.ComprehendStartPiiEntitiesDetectionJobCompletedSensor": _RETURNS_POKE,
    "amazon.aws.sensors.emr.EmrContainerSensor": "its poke waits for the end of the job, and keeps its slot meanwhile",
    "amazon.aws.sensors.kinesis_analytics.KinesisAnalyticsV2StartApplicationCompletedSensor": _RETURNS_POKE,
    "amazon.aws.sensors.kinesis_analytics.KinesisAnalyticsV2StopApplicationCompletedSensor": _RETURNS_POKE,
    "amazon.aws.sensors.opensearch_serverless.OpenSearchServerlessCollectionActiveSensor": _RETURNS_POKE,
    "amazon.aws.sensors.mwaa.MwaaTaskSensor": _BEFORE,
    "google.cloud.sensors.bigquery.BigQueryStreamingBufferEmptySensor": _RETURNS_MESSAGE,
    "google.cloud.sensors.bigquery.BigQueryTableExistenceSensor": _RETURNS_MESSAGE,
    "google.cloud.sensors.bigquery.BigQueryTablePartitionExistenceSensor": _RETURNS_MESSAGE,
    "standard.sensors.time_delta.TimeDeltaSensor": "it returns a value if its time is over when it begins",
}
# with deferrable=True and without this argument, the execution_timeout is the time limit of their trigger
_WITHOUT_LIMIT = {f"{_PROVIDERS}amazon.aws.sensors.batch.BatchSensor": "max_retries"}
# its constructor asks its DAG, so it cannot be built without; it makes the same of deferrable=False
_ASKS_ITS_DAG = frozenset({f"{_PROVIDERS}standard.sensors.time.TimeSensor"})
# its execute looks for the newest run if none is given, and keeps it in the argument's attribute
PREPARES = {f"{_PROVIDERS}amazon.aws.sensors.mwaa.MwaaTaskSensor": ("external_dag_run_id",)}
# arguments with which a poke counts the seconds since its ``execute`` began, and the attribute that keeps that moment
COUNTS_SECONDS = {
    f"{_PROVIDERS}google.cloud.sensors.dataproc.DataprocBatchSensor": ("wait_timeout", "start_sensor_time"),
    f"{_PROVIDERS}google.cloud.sensors.dataproc.DataprocJobSensor": ("wait_timeout", "start_sensor_time"),
    f"{_PROVIDERS}google.cloud.sensors.vertex_ai.feature_store.FeatureViewSyncSensor": (
        "wait_timeout",
        "start_sensor_time",
    ),
}
# sends its parameters in the given order, which a server may read
IN_ORDER = frozenset({f"{_PROVIDERS}http.sensors.http.HttpSensor"})

# arguments that are called with names of the template context, and the arguments that give such names themselves; None
# for an argument that gets the whole template context, or nothing
_WITH_CONTEXT: dict[str, dict[str, tuple[str, ...] | None]] = {
    f"{_PROVIDERS}amazon.aws.sensors.s3.S3KeySensor": {"check_fn": None},
    f"{_PROVIDERS}http.sensors.http.HttpSensor": {"response_check": ()},
    f"{_PROVIDERS}standard.sensors.python.PythonSensor": {"python_callable": ("op_kwargs",)},
}
# attributes that each poke sets anew from the arguments
_SET_ANEW = {f"{_PROVIDERS}standard.sensors.python.PythonSensor": ("op_kwargs",)}
# arguments that each poke merges into the template context: the names in the first, and the second by its own name
_MERGED = {f"{_PROVIDERS}standard.sensors.python.PythonSensor": ("op_kwargs", "templates_dict")}

# the arguments that the status of a job depends on: the pool keeps no other arguments of these operators
JOB_ARGUMENTS = {
    f"{_PROVIDERS}apache.spark.operators.spark_submit.SparkSubmitOperator": frozenset(
        {
            *("conn_id", "deploy_mode", "spark_binary", "track_driver_via_k8s_api", "yarn_track_via_rm_api"),
            *("keytab", "principal", "yarn_rm_auth"),
        }
    ),
}


def reason_against(cls: type) -> str | None:
    """Return why a class, or a base of it, is known not to be poolable; None if it is not known so."""
    for name in class_paths(cls):
        if (why := NOT_POOLABLE.get(name.removeprefix(_PROVIDERS))) is not None and name.startswith(_PROVIDERS):
            return why
    return None


def reason_to_defer(cls: type) -> str | None:
    """Return why sensors of a class with ``deferrable=True`` defer by themselves; None if the pool may take them."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    if name in _ENDS_ALIKE:
        return None
    return _ENDS_OTHERWISE.get(name.removeprefix(_PROVIDERS), "its class has not been reviewed for that")


def reason_to_defer_with_arguments(sensor: Any) -> str | None:
    """Return why a deferrable sensor defers by itself with its arguments; None if the pool may take it."""
    name = _WITHOUT_LIMIT.get(f"{type(sensor).__module__}.{type(sensor).__qualname__}")
    if name is not None and sensor.execution_timeout is not None and not getattr(sensor, name):
        return "its execution_timeout is the time limit of its trigger"
    return None


def asks_its_dag(cls: type) -> bool:
    """Whether the constructor of a class is known to ask for its DAG."""
    return f"{cls.__module__}.{cls.__qualname__}" in _ASKS_ITS_DAG


def reason_against_arguments(sensor: Any) -> str | None:
    """Return why a sensor is known not to be poolable with its arguments; None if it is not known so."""
    name, _ = _counts_seconds(type(sensor))
    if name and getattr(sensor, name, None):
        return f"with {name} its answer builds on earlier pokes"
    given = operators.constructor_arguments(sensor)
    for name in prepared(type(sensor)) if sensor.reschedule else ():
        if given.get(name) is None:
            return f"without {name} its execute looks for it before each poke"
    return None


def prepared(cls: type) -> tuple[str, ...]:
    """Return the arguments that a class's ``execute`` is known to set before it waits, where they are not given."""
    return next((PREPARES[name] for name in class_paths(cls) if name in PREPARES), ())


def set_by_execute(cls: type) -> set[str]:
    """Return the attributes that a class's ``execute`` sets before it waits, and that a pooled poke does not read."""
    asks = {"hook"} if prepared(cls) else set()
    return asks | {attribute for attribute in _counts_seconds(cls)[1:] if attribute}


def _counts_seconds(cls: type) -> tuple[str, str]:
    return next((COUNTS_SECONDS[name] for name in class_paths(cls) if name in COUNTS_SECONDS), ("", ""))


def called_with_context(cls: type) -> dict[str, tuple[str, ...] | None]:
    """Return the arguments of a class that its poke calls with the template context (`_WITH_CONTEXT`)."""
    return next((_WITH_CONTEXT[name] for name in class_paths(cls) if name in _WITH_CONTEXT), {})


def set_anew(cls: type) -> tuple[str, ...]:
    """Return the attributes that each poke of a class sets anew from its arguments; none if it has another poke."""
    base = next(base for base in cls.__mro__ if "poke" in vars(base) or base is object)
    return _SET_ANEW.get(f"{base.__module__}.{base.__qualname__}", ())


def merged_into_context(cls: type) -> tuple[str, str] | None:
    """Return the arguments of a class that its poke merges into the template context (`_MERGED`)."""
    return next((_MERGED[name] for name in class_paths(cls) if name in _MERGED), None)


def works_afterwards(cls: type) -> bool:
    """Whether a class is known to do more after its base's ``execute`` has returned."""
    return not WORKS_AFTERWARDS.isdisjoint(class_paths(cls))


def is_reviewed(cls: type) -> bool:
    """Whether a class is of a provider whose sensors have been reviewed."""
    return is_of_reviewed(cls.__module__)


def is_of_reviewed(module: str) -> bool:
    """Whether a module is of a provider whose sensors have been reviewed."""
    return module.startswith(tuple(f"{_PROVIDERS}{name}." for name in _REVIEWED))


def is_stateless(cls: type) -> bool:
    """Whether a class is known, or declares, to give answers that do not build on one another."""
    return is_reviewed(cls) or declares_fields(cls)


def declares_fields(cls: type) -> bool:
    """Whether a class declares by AIP-17's ``poke_context_fields`` that its answer depends on these alone.

    The declaration of a base holds for its own constructor and poke, and not for those of a derived class.
    """
    for base in cls.__mro__:
        if "poke_context_fields" in vars(base):
            return True
        if "__init__" in vars(base) or "poke" in vars(base):
            return False
    return False


def declared_fields(cls: type) -> tuple[str, ...]:
    """Return the names that a class declares in ``poke_context_fields``."""
    return tuple(getattr(cls, "poke_context_fields", ()))


def needs_order(cls: type) -> bool:
    """Whether a class's answer may depend on the order of mappings among its arguments."""
    return not is_reviewed(cls) or not IN_ORDER.isdisjoint(class_paths(cls))


def class_paths(cls: type) -> list[str]:
    """Return the paths of a class and its bases, its own first."""
    return [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__]
