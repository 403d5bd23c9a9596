"""The names of the cases in ``start/parity.py``, which only Airflow imports, and what each condition does."""

CASES = {  # what the condition does once the sensors wait; "" if that is decided already
    "success": "land",
    "success_callbacks": "land",
    "outlet": "land",
    "templates": "land",
    "reschedule": "land",
    "execution_timeout": "",
    "timeout": "",
    "timeout_soft_fail": "",
    "timeout_never_fail": "",
    "error": "raise",
    "error_soft_fail": "raise",
    "error_never_fail": "raise",
    "error_email": "raise",
    "error_retried": "",
    "external": "",
    "external_skips": "",
    "external_fails": "",
}
