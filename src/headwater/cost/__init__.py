"""What queries cost: rates, sizes, CPU and network usage, as functions over frozen data."""
