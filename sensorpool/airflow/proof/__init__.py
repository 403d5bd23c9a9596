"""The proof that a sensor answers the same in the pool: its arguments, its state, and what its poke does."""
