"""DetectNetTransformation of NVIDIA's fork: augmentation and targets for DetectNet."""
