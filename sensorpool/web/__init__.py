"""The pages of a pool: why a task waits, what is waited for, how the pool does. Alone, or in another application."""
