"""What ``scaffe doctor`` looks at: one subject a file, each a function that yields findings."""
