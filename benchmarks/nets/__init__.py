"""The nets that benchmarks train, described once for every side of a comparison."""
