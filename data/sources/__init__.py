"""Where samples come from, one module a kind."""
