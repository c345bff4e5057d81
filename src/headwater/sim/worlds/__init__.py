"""Worlds of a user's own: a network with providers, streams and queries, simulated under several policies."""
