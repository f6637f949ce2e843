"""One shard: its part of all tables, the rules that update it, and the thread that runs it."""
