"""Dissemination trees whose providers run the real protocol: all interleavings of a few, histories of hundreds."""
