"""What workers and shards say to one another, and the mailboxes of a node in which they say it."""
