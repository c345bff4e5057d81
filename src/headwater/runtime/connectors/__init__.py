"""Where tuples come from and where results go: one module for each kind, found by its name in `registry`."""
