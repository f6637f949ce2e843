"""Turn a LevelDB of Caffe's records into an LMDB."""

from data.tools.convert_leveldb import main

__all__ = ["main"]
