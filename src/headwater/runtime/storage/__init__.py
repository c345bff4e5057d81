"""The files of a state: segments as Parquet, their checksums, and the directory they are in.

A segment file is complete before the catalog names it and never changes afterwards, so it can be
read without locks, copied and compared with its checksum at any time.
"""
