"""What ranks declare: tables and batches of their rows, and who is worker or shard on which node. Pure."""
