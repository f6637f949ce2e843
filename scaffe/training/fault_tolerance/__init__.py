"""Training continues when ranks are lost (`-on-rank-loss shrink`), or with others in their place (`replace`)."""
