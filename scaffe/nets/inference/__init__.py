"""Forward passes of nets that are not being trained: batch norm folded into convolutions, weights laid out once."""
