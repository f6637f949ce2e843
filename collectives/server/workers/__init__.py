"""A worker: its batches and buffers, its sequence of calls, and the threads that send and receive for it."""
