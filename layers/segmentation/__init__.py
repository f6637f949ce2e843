"""Layers of the forks for semantic segmentation: SegNet's, DeepLab's and PSPNet's."""
