"""Logical queries as frozen data: types, windows, expressions, relations, and their canonical form."""
