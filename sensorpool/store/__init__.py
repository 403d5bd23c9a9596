"""Every SQL statement of sensorpool, one function a statement. They take a connection; `Database.run` commits."""
