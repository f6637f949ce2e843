"""Training in limited memory: the problem, the plan, the backing store, the run (GeePS, section 4)."""
