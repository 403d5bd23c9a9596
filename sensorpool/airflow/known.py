"""Sensors of the providers that look poolable and are not: found by reading each of them.

A sensor of the providers that is not named here is proved one by one on the worker; those of other packages are also
watched at their first poke (`first_poke`). A class that has AIP-17's ``poke_context_fields`` says of itself that its
answer depends on these alone.
"""

_PROVIDERS = "airflow.providers."
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
    "google.cloud.sensors.gcs.GCSObjectExistenceSensor": _AFTER,
    "google.cloud.sensors.gcs.GCSObjectsWithPrefixExistenceSensor": _AFTER,
    "google.cloud.sensors.gcs.GCSUploadSessionCompleteSensor": _ON_EARLIER,
    "google.cloud.sensors.pubsub.PubSubPullSensor": _AFTER,
    "google.cloud.sensors.vertex_ai.feature_store.FeatureViewSyncSensor": _BEFORE,
    "redis.sensors.redis_pub_sub.RedisPubSubSensor": _ON_EARLIER,
}
# its execute fetches what the notebook made, once its base's has returned: never ended without a worker
WORKS_AFTERWARDS = frozenset(
    {f"{_PROVIDERS}amazon.aws.sensors.sagemaker_unified_studio_notebook.SageMakerUnifiedStudioNotebookSensor"}
)

# what the status of a job depends on, so that nothing else of these operators is kept in the pool
JOB_ARGUMENTS = {
    f"{_PROVIDERS}apache.spark.operators.spark_submit.SparkSubmitOperator": frozenset(
        {"conn_id", "deploy_mode", "spark_binary", "track_driver_via_k8s_api", "yarn_track_via_rm_api"}
    ),
}


def why_not(op_classpath: str) -> str | None:
    """Return why a sensor of the providers is not poolable, if it is known not to be."""
    if not op_classpath.startswith(_PROVIDERS):
        return None
    return NOT_POOLABLE.get(op_classpath.removeprefix(_PROVIDERS))


def vouches_for_itself(cls: type) -> bool:
    """Whether it is known that a class's answers do not build on one another."""
    return cls.__module__.startswith(_PROVIDERS) or hasattr(cls, "poke_context_fields")
