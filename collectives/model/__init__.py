"""Plans without MPI: the simulator that proves them and the cost model that predicts their time."""
