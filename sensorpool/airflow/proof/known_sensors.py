"""Sensors of the providers that look poolable and are not: found by reading each of them.

A sensor of the providers read that is not named here is proved one by one on the worker; those of other packages are
also watched at their first poke (`first_poke`). What is said of a class holds for those derived from it. A class that
has AIP-17's ``poke_context_fields`` says of itself that its answer depends on these alone.
"""

_PROVIDERS = "airflow.providers."
_READ = ("amazon", "apache.hive", "celery", "common.sql", "ftp", "google", "http", "redis", "sftp", "standard")
_ON_EARLIER = "its answer builds on earlier pokes"
_BEFORE = "its execute prepares what its poke needs"
_AFTER = "its execute works with what its last poke left"

NOT_POOLABLE = {
    "amazon.aws.sensors.mwaa.MwaaTaskSensor": _BEFORE,
    "amazon.aws.sensors.s3.S3KeysUnchangedSensor": _ON_EARLIER,
    "amazon.aws.sensors.sagemaker.SageMakerTrainingSensor": _ON_EARLIER,
    "celery.sensors.celery_queue.CeleryQueueSensor": "its poke asks the task runner for XComs",
    "google.cloud.sensors.cloud_composer.CloudComposerDAGRunSensor": _BEFORE,
    "google.cloud.sensors.cloud_composer.CloudComposerExternalTaskSensor": _BEFORE,
    "google.cloud.sensors.dataplex.DataplexDataProfileJobStatusSensor": _ON_EARLIER,
    "google.cloud.sensors.dataplex.DataplexDataQualityJobStatusSensor": _ON_EARLIER,
    "google.cloud.sensors.dataproc.DataprocBatchSensor": _BEFORE,
    "google.cloud.sensors.dataproc.DataprocJobSensor": _BEFORE,
    "google.cloud.sensors.dataproc_metastore.MetastoreHivePartitionSensor": "its poke asks for its timeout",
    "google.cloud.sensors.gcs.GCSObjectExistenceSensor": _AFTER,
    "google.cloud.sensors.gcs.GCSObjectsWithPrefixExistenceSensor": _AFTER,
    "google.cloud.sensors.gcs.GCSUploadSessionCompleteSensor": _ON_EARLIER,
    "google.cloud.sensors.pubsub.PubSubPullSensor": _AFTER,
    "google.cloud.sensors.vertex_ai.feature_store.FeatureViewSyncSensor": _BEFORE,
    "redis.sensors.redis_pub_sub.RedisPubSubSensor": _ON_EARLIER,
    "standard.sensors.bash.BashSensor": "its command sees the environment of its worker, where Airflow names the task",
}
# its execute fetches what the notebook made, once its base's has returned: never ended without a worker
WORKS_AFTERWARDS = frozenset(
    {f"{_PROVIDERS}amazon.aws.sensors.sagemaker_unified_studio_notebook.SageMakerUnifiedStudioNotebookSensor"}
)
# sends its parameters in the order in which they were given, and a server may look at that
IN_ORDER = frozenset({f"{_PROVIDERS}http.sensors.http.HttpSensor"})

# what the status of a job depends on, so that nothing else of these operators is kept in the pool
JOB_ARGUMENTS = {
    f"{_PROVIDERS}apache.spark.operators.spark_submit.SparkSubmitOperator": frozenset(
        {
            *("conn_id", "deploy_mode", "spark_binary", "track_driver_via_k8s_api", "yarn_track_via_rm_api"),
            *("keytab", "principal", "yarn_rm_auth"),
        }
    ),
}


def why_not(cls: type) -> str | None:
    """Return why a sensor is known not to be poolable, if it is: its own class, or one that it is derived from."""
    for name in _names(cls):
        if (why := NOT_POOLABLE.get(name.removeprefix(_PROVIDERS))) is not None and name.startswith(_PROVIDERS):
            return why
    return None


def works_afterwards(cls: type) -> bool:
    """Whether it is known that a class does more once its base's ``execute`` has returned."""
    return not WORKS_AFTERWARDS.isdisjoint(_names(cls))


def was_read(cls: type) -> bool:
    """Whether a class is of the providers whose sensors were read."""
    return cls.__module__.startswith(tuple(f"{_PROVIDERS}{name}." for name in _READ))


def vouches_for_itself(cls: type) -> bool:
    """Whether it is known that a class's answers do not build on one another."""
    return was_read(cls) or declares_fields(cls)


def declares_fields(cls: type) -> bool:
    """Whether a class says by AIP-17's ``poke_context_fields`` that its answer depends on these alone.

    What a base says holds for its own constructor and its own poke: not for those that a derived class brings.
    """
    for base in cls.__mro__:
        if "poke_context_fields" in vars(base):
            return True
        if "__init__" in vars(base) or "poke" in vars(base):
            return False
    return False


def fields(cls: type) -> tuple[str, ...]:
    """Return what a class that `declares_fields` names."""
    return tuple(getattr(cls, "poke_context_fields", ()))


def needs_order(cls: type) -> bool:
    """Whether a class's answer may go by the order of a mapping among its arguments: not where it was read."""
    return not was_read(cls) or not IN_ORDER.isdisjoint(_names(cls))


def _names(cls: type) -> list[str]:
    return [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__]
