"""What has been delivered."""

from django.db import models


class Delivery(models.Model):
    """A delivery of a partner."""

    partner = models.CharField(max_length=50)
    state = models.CharField(max_length=16)
    at = models.DateTimeField(auto_now_add=True)
