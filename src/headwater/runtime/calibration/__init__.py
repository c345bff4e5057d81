"""Measures what operators cost on this machine, by which joins are ordered and queries priced."""
