"""The version of this package, on a low floor, so that every package can import it."""

__version__ = "0.1.0"
