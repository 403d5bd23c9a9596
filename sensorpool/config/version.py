"""The version of this package, on the ground where all that names it can reach it."""

__version__ = "0.1.0"
