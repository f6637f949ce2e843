"""Training with the parameters on a parameter server: tables, the rule on the shards, stops, and what it all did."""
