"""The server across nodes: proxies of other nodes' shards, and links that send their messages and rows."""
