"""A worker's side: its batches, its sequence of calls, and who sends and takes its messages."""
