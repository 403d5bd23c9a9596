"""The state of sensors, objects, classes and modules: read, compared, and found changed."""
