"""The tree of coordinators over the providers, and what they send each other."""
