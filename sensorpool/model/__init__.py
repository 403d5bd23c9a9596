"""Values and pure rules: the standard library and `errors`, and nothing else."""
