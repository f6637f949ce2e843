"""Compiled loops that run without the interpreter's lock; imported inside functions, so that import stays light."""
