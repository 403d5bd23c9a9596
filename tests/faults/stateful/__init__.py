"""The pool's real code on real stores: Hypothesis chooses the order of the steps, the times and the faults."""
