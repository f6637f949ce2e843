"""What runs left behind, logs and traces: read, and shown together on one page."""
