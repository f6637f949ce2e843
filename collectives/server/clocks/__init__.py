"""Who may go how far ahead: the state machines of a shard and of a worker. Pure, no I/O."""
