"""The settings of a process, and the extensions of other packages (entry points)."""
