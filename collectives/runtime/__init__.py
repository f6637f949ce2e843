"""Running plans over MPI: engines, their helper threads, and the watch over ranks that do not come."""
