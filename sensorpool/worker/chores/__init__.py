"""The chores of rescue, by what they look at. Each says what it does in a round at most."""
