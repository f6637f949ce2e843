"""Which rank reads which record when: sharding and shuffling, pure."""
