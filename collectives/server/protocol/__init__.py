"""What workers and shards say to one another, and who may go how far ahead: messages, mailboxes, clocks."""
