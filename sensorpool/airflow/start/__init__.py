"""A sensor that starts without a worker: marked at parse, deferred by the scheduler, registered by the triggerer."""
