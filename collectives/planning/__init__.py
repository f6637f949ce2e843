"""Planning: pure functions from one collective call to the messages of one rank."""
