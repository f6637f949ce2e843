"""L-BFGS on many ranks: a coordinator that sends commands, shards that hold vectors, replicas that compute portions."""
