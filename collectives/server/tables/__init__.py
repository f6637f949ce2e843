"""Tables and batches of their rows, and which ranks are workers or hold shards on which node. Pure."""
