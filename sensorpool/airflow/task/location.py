"""The location of what a sensor of Airflow waits for: by its own word, or by its arguments."""

from collections.abc import Callable, Mapping
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.location import common_folder, location_named, pattern_folder
from sensorpool.poke.classes import LOCATION_OF

log = logger(__name__)


def location_of(sensor: Any, poke_context: Mapping[str, Any]) -> str | None:
    """Return the location; None: it is not known.

    :param sensor: its templates are rendered.
    """
    try:
        if callable(own := getattr(type(sensor), LOCATION_OF, None)):
            return location_named(own(dict(poke_context)))
        names = (f"{base.__module__}.{base.__qualname__}" for base in type(sensor).__mro__)
        return next((_OF[name](sensor) for name in names if name in _OF), None)
    except Exception as error:  # it is for wake-ups: no sensor keeps its slot for it
        log.warning("the location of what a sensor waits for is not known", error=one_line(error))
        return None


def _s3_keys(sensor: Any) -> str | None:
    """S3KeySensor: one key or several, each in ``bucket_name`` or a URL, and perhaps patterns."""
    keys = [sensor.bucket_key] if isinstance(sensor.bucket_key, str) else list(sensor.bucket_key)
    urls = [key if "://" in key else f"s3://{sensor.bucket_name}/{key}" for key in keys]
    as_location = pattern_folder if sensor.wildcard_match or sensor.use_regex else location_named
    if sensor.use_regex:  # a regular expression has no beginning that is surely a name
        urls = [f"{url.split('/', 3)[0]}//{url.split('/', 3)[2]}/" for url in urls]
    return _common([as_location(url) for url in urls])


def _gcs_object(sensor: Any) -> str | None:
    return location_named(f"gs://{sensor.bucket}/{sensor.object}")


def _gcs_prefix(sensor: Any) -> str | None:
    return _folder(f"gs://{sensor.bucket}/{sensor.prefix}")


def _file(sensor: Any) -> str | None:
    """FileSensor: a path of its own only if it is absolute; else its connection says where it is."""
    path = str(sensor.filepath)
    return pattern_folder(f"file://{path}") if path.startswith("/") else None


def _folder(url: str) -> str | None:
    return location_named(url[: url.rfind("/") + 1])


def _common(found: list[str | None]) -> str | None:
    known = [each for each in found if each is not None]
    return common_folder(known) if len(known) == len(found) else None


_OF: dict[str, Callable[[Any], str | None]] = {
    "airflow.providers.amazon.aws.sensors.s3.S3KeySensor": _s3_keys,
    "airflow.providers.google.cloud.sensors.gcs.GCSObjectExistenceSensor": _gcs_object,
    "airflow.providers.google.cloud.sensors.gcs.GCSObjectUpdateSensor": _gcs_object,
    "airflow.providers.google.cloud.sensors.gcs.GCSObjectsWithPrefixExistenceSensor": _gcs_prefix,
    "airflow.providers.standard.sensors.filesystem.FileSensor": _file,
}
