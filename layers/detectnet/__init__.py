"""DetectNetTransformation, of NVIDIA's fork: images and boxes into what DetectNet learns."""
