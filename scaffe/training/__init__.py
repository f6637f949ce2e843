"""The training loop and what it is made of: strategies, update rules, observers, checkpoints."""
