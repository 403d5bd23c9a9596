"""Backends on the loopback interface, as much of them as it takes to ask."""
