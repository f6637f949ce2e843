"""Model parallelism: one net across the ranks of a replica, layer by layer as a planner finds best."""
