"""Settings of the project, of Celery, and of the pool."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "an example has no secrets")
INSTALLED_APPS = ["sensorpool.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": HERE / "shop.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

CELERY_BROKER_URL = f"{REDIS_URL}/0"
CELERY_TASK_DEFAULT_QUEUE = "shop"

SENSORPOOL_DATABASE = "default"
SENSORPOOL_REDIS_URL = f"{REDIS_URL}/1"
SENSORPOOL_ON_SETTLED_TASKS = "shop.*"
SENSORPOOL_ON_SETTLED_BROKER_URL = CELERY_BROKER_URL
SENSORPOOL_TICK = 1
