"""The pool's pages in Airflow's UI: in the navigation, on each run and on each task, for who may see them there."""
