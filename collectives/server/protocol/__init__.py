"""The protocol of workers and shards: messages, mailboxes, and the clocks that bound staleness."""
