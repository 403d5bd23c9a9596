"""The commands of the ``sensorpool`` command line."""
