"""Simulation: plans, policies and federations tried without Spark, the same bytes for the same seed."""
