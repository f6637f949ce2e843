"""Which algorithm and chunk `auto` takes: the measured table, its look-up, and the program that measures it."""
