"""Blobs as tensors and tensors as inputs, without a copy: ``python share_blobs.py PROTOTXT``. Fails by an assertion."""

import sys

import numpy as np
import torch

import scaffe as caffe

net = caffe.Net(sys.argv[1], caffe.TEST)
batch = torch.randn(4, 2, 5, 6).to(memory_format=torch.channels_last)
net.share_input("data", batch)
first = net.forward()["prob"].copy()
conv = torch.from_dlpack(net.blobs["conv"])
assert conv.data_ptr() == net.blobs["conv"].data.ctypes.data
assert conv.shape == (4, 3, 5, 6)
conv.fill_(0)
assert not net.blobs["conv"].data.any()
batch.mul_(-1)
second = net.forward()["prob"]
assert np.abs(first - second).max() > 1e-3
weight = torch.from_dlpack(net.params["ip"][0])
weight.zero_()
assert np.allclose(net.forward()["prob"], 1 / 7)
diff = torch.from_dlpack(net.blobs["ip"].diff)
diff.fill_(2)
assert (net.blobs["ip"].diff == 2).all()
