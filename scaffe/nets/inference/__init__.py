"""Forward passes of nets that are not trained: batch norm folded into convolutions, weights laid out once."""
