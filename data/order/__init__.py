"""Which rank reads which record when; pure functions of rank, ranks and seed."""
