"""The pool's real code on its real stores, in an order, at times and with faults that Hypothesis chooses."""
