"""What goes from node to node: proxies of other nodes' shards, and the links that carry their messages and rows."""
