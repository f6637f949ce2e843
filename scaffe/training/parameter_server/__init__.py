"""Training with parameters on a parameter server: roles, state, tables, rules on shards, stops, statistics."""
