"""Second copies of shards' histories on other nodes, which outlive the node that holds the shards."""
