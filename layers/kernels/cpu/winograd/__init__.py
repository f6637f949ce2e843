"""Winograd's minimal filtering for 3x3 convolutions of images, in tiles of 4x4 outputs: the transforms, compiled.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), section 4.1: F(4x4, 3x3) takes
36 products for 16 outputs instead of 144, y = Aᵀ [(G w Gᵀ) ⊙ (Bᵀ d B)] A. Its transpose gives the gradient of the
weights, Gᵀ [(A gy Aᵀ) ⊙ (Bᵀ d B)] G. Each row of tiles of each image has a number q = image * tile rows + row.
"""
