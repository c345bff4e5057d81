"""Ingestion: tuples from sources and clients become segments of stream logs.

The position in a source is a cursor that moves in the same transaction that registers the segment,
so a batch is ingested exactly once, whatever crashes in between.
"""
