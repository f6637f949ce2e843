"""Recurrent networks over sequences (Caffe 1.0)."""
