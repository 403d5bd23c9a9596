"""Every SQL statement of sensorpool, one function a sentence. Functions take a connection, and leave commits to `run`."""
