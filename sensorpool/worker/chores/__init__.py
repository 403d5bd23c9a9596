"""The chores of rescue, one a file. Each says what it does in a round at most."""
