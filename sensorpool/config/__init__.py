"""The settings of a process, and what other packages add to them."""
