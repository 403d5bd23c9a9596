"""The examples, started and checked."""
