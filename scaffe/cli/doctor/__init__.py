"""The checks of ``scaffe doctor``: each is a function that yields findings."""
