"""Reads the sources of packages without importing them: their modules, and which classes in these are sensors."""
