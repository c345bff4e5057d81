"""The model checker: all interleavings of a few state machines."""
