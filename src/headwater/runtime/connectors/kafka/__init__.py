"""Kafka: a source and a sink, the client that both use, and how secrets reach it."""
