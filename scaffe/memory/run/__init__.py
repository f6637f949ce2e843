"""Carries memory plans out while nets run, and reports them."""
