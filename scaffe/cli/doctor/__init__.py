"""What ``scaffe doctor`` looks at: each subject is a function that yields findings."""
