"""Caffe's message classes, from the compiled schema ``caffe.pb`` beside this file.

They live in a descriptor pool of their own, so that another ``caffe_pb2`` in the same process does not clash, and any
protobuf from 4.25 to 7 reads them. Names as in Caffe: ``caffe_pb2.NetParameter()``, ``caffe_pb2.TRAIN``,
``caffe_pb2.Phase.Value("TRAIN")``, and the file's own ``DESCRIPTOR``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper


def _load() -> dict[str, Any]:
    files = descriptor_pb2.FileDescriptorSet.FromString((Path(__file__).parent / "caffe.pb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    names: dict[str, Any] = {}
    for file in files.file:
        found = pool.FindFileByName(file.name)
        for name, message in found.message_types_by_name.items():
            names[name] = message_factory.GetMessageClass(message)
        for name, enum in found.enum_types_by_name.items():
            names.update({value.name: value.number for value in enum.values})
            names[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        names["DESCRIPTOR"] = found
    return names


_names = _load()
__all__ = sorted(_names)  # noqa: PLE0605
globals().update(_names)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"Caffe's schema has no {name!r}")
