"""The client: whoever waits for something registers it here, waits for it and cancels it."""
