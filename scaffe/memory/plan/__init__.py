"""Which arrays stay, are offloaded or are computed again: pure."""
