"""Files damaged at random, read by every reader of ours in children under limits (python -m tests.fuzz)."""
