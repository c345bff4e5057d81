"""The evaluation of StreamReuse: two workloads on 128 nodes, with and without reuse, simulated."""
