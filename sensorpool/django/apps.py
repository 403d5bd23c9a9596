"""The application, as Django lists it."""

from django.apps import AppConfig


class SensorpoolConfig(AppConfig):
    """It has no models."""

    name = "sensorpool.django"
    label = "sensorpool"
    verbose_name = "sensorpool"
