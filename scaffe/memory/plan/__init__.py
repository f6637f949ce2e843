"""Which tensors are kept in memory, offloaded or recomputed, and when: pure functions of an iteration."""
