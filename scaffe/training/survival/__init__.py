"""Training goes on when ranks are lost (`-on-rank-loss shrink`)."""
