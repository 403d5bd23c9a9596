"""What a poke does that only its task, its worker or its process can: noted on the worker, denied in the pool."""
