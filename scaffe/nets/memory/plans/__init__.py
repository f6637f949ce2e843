"""Memory plans: pure arithmetic, without arrays."""
