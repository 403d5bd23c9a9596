"""The client of a pool: it registers sensors, waits for them and cancels them."""
