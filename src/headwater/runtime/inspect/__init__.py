"""What a state looks like from outside: read-only views, as typed records.

A view is a frozen dataclass that is read from the catalog alone, so it can be had whether or not an
engine runs. Each has one JSON form (`as_json`), and the command line, Python and everything that
serves a state later print that one.
"""
