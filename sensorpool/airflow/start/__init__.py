"""A sensor that starts without a worker: given a blueprint at parse, deferred by the scheduler, registered by the triggerer."""
