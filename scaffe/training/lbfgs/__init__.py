"""L-BFGS by a coordinator: directions and steps from scalars alone, and portions of a batch shared out to replicas."""
