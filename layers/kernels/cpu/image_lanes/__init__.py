"""Convolutions whose channels fill no whole vectors: images lie side by side in the vectors' lanes instead.

A vector holds one channel of one pixel of several images, so that each product uses all lanes whatever the channels;
oneDNN's direct kernels fill channels up to a multiple of 16. Krizhevsky's cuda-convnet laid images so (CHWN).
"""
