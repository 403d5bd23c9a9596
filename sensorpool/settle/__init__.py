"""From facts to terminal states: a pure decision, and the one transaction that writes it."""
