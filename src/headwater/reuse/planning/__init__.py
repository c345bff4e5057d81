"""The choice of what a query uses: over its connected parts, what runs, and the places it may run at.

The simulator of StreamReuse decides by it, over the sites of a network.
"""
