"""A sensor that begins without a worker: its blueprint at parse, and its start in the triggerer."""
