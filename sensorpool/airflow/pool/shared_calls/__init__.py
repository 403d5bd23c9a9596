"""One call for many: shared calls (`poke.shared_call`) of the sensors of Airflow's providers, a file for a backend."""
