"""The settings of a process, and the extensions of other packages (entry points)."""

__version__ = "0.1.0"
