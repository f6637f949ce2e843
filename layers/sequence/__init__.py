"""Layers of the forks for sequences: caffe-lstm's, CTPN's and caffe_ocr's."""
