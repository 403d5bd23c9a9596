"""Every SQL statement of sensorpool, one function a sentence. They take a connection; `Database.run` commits."""
