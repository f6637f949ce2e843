"""scaffe: a Caffe-compatible trainer on an MPI collective runtime."""
