"""All that is used of Airflow under private or moving names; each has a contract test (``tests/airflow``)."""
