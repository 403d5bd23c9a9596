"""Sensors of the providers that look poolable and are not, found in a review of each provider's sensors.

Other sensors of the reviewed providers are proved one by one on the worker; sensors of other packages are also watched
at their first poke (`task.first_poke`). An entry holds for the class and for all classes derived from it. A class with
AIP-17's ``poke_context_fields`` declares that its answer depends on these alone.
"""

_PROVIDERS = "airflow.providers."
_REVIEWED = ("amazon", "apache.hive", "celery", "common.sql", "ftp", "google", "http", "redis", "sftp", "standard")
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
# its execute fetches the notebook's output after its base's has returned: it always ends on a worker
WORKS_AFTERWARDS = frozenset(
    {f"{_PROVIDERS}amazon.aws.sensors.sagemaker_unified_studio_notebook.SageMakerUnifiedStudioNotebookSensor"}
)
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
# arguments that are called once the condition holds: each task has to call its own
_CALLED_AT_LANDING = {f"{_PROVIDERS}sftp.sensors.sftp.SFTPSensor": "python_callable"}

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
    for name in _names(cls):
        if (why := NOT_POOLABLE.get(name.removeprefix(_PROVIDERS))) is not None and name.startswith(_PROVIDERS):
            return why
    return None


def called_with_context(cls: type) -> dict[str, tuple[str, ...] | None]:
    """Return the arguments of a class that its poke calls with the template context (`_WITH_CONTEXT`)."""
    return next((_WITH_CONTEXT[name] for name in _names(cls) if name in _WITH_CONTEXT), {})


def set_anew(cls: type) -> tuple[str, ...]:
    """Return the attributes that each poke of a class sets anew from its arguments; none if it has another poke."""
    base = next(base for base in cls.__mro__ if "poke" in vars(base) or base is object)
    return _SET_ANEW.get(f"{base.__module__}.{base.__qualname__}", ())


def merged_into_context(cls: type) -> tuple[str, str] | None:
    """Return the arguments of a class that its poke merges into the template context (`_MERGED`)."""
    return next((_MERGED[name] for name in _names(cls) if name in _MERGED), None)


def called_at_landing(cls: type) -> str | None:
    """Return the argument that a class calls once its condition holds."""
    return next((_CALLED_AT_LANDING[name] for name in _names(cls) if name in _CALLED_AT_LANDING), None)


def works_afterwards(cls: type) -> bool:
    """Whether a class is known to do more after its base's ``execute`` has returned."""
    return not WORKS_AFTERWARDS.isdisjoint(_names(cls))


def is_reviewed(cls: type) -> bool:
    """Whether a class is of a provider whose sensors have been reviewed."""
    return cls.__module__.startswith(tuple(f"{_PROVIDERS}{name}." for name in _REVIEWED))


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
    return not is_reviewed(cls) or not IN_ORDER.isdisjoint(_names(cls))


def _names(cls: type) -> list[str]:
    return [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__]
