"""Redis: who may work on which shard range, and what each holder leaves there. All of it is disposable."""
