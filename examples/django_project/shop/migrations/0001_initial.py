"""The first tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the table of deliveries."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("partner", models.CharField(max_length=50)),
                ("state", models.CharField(max_length=16)),
                ("at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
