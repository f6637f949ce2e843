"""Trained weights in safetensors files: blob i of a layer is the tensor ``layer.i``, in Caffe's shape.

The package safetensors is imported when such a file is read or written.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.errors import UserError
from scaffe.files.hdf5 import MOST_BLOBS, Layer, StoredLayer, check_names
from scaffe.input_files import open_input, told
from scaffe.proto.byte_text import shown

ENDING = ".safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
ABOUT = "blob I of layer L is the tensor L.I, in Caffe's shape"
MISSING = "safetensors files need the package safetensors: pip install 'scaffe[safetensors]'"


def write_model(path: str | Path, net_name: str, layers: Iterable[StoredLayer]) -> None:
    """Write a net's blobs, each once: those that another layer owns are left out.

    Raises:
        UserError: the file cannot be written, two layers have one name, or safetensors is not installed.
    """
    stored = [layer for layer in layers if layer.blobs]
    check_names(path, [layer.param.name for layer in stored])
    tensors = {f"{layer.param.name}.{i}": blob for layer in stored for i, blob in enumerate(layer.blobs)
               if i not in layer.shared}
    write_tensors(path, tensors, {"format": "caffe", "net": net_name, "about": ABOUT})


def write_tensors(path: str | Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write arrays as float32, whole or not at all. Raises UserError, also where safetensors is not installed."""
    whole = {name: np.ascontiguousarray(array, np.float32).reshape(array.shape) for name, array in tensors.items()}
    write_whole(path, _library("safetensors.numpy").save(whole, metadata), UserError)


def model_layers(path: str | Path) -> Iterator[Layer]:
    """A net's layers, one after another, so that they need not fit in memory together.

    Yields:
        (name, "", blobs float32). A blob is None where the file has none of its number.

    Raises:
        UserError: the file is missing, damaged or holds something else, or safetensors is not installed.
    """
    with _opened(path) as file:
        names: dict[str, dict[int, str]] = defaultdict(dict)
        for key in file.keys():  # noqa: SIM118 - it is no dict
            layer, _, number = key.rpartition(".")
            if not (number.isascii() and number.isdecimal() and len(number) < len(str(MOST_BLOBS))):
                raise UserError(f"{path}: expected tensors called by layer and blob, as conv1.0, got {shown(key)!r}")
            names[layer][int(number)] = key
        if not names:
            raise UserError(f"{path}: holds no tensors; those of a net were expected")
        for layer, keys in names.items():
            yield layer, "", [_array(file, keys[i]) if i in keys else None for i in range(max(keys) + 1)]


def _array(file: Any, key: str) -> np.ndarray:
    """A tensor as float32; values beyond become infinite, as in Caffe. Raises ValueError for one of no floats."""
    kind = file.get_slice(key).get_dtype()
    if kind not in FLOATS:
        raise ValueError(f"tensor {shown(key)!r} has {kind}, expected one of {', '.join(FLOATS)}")
    if kind == "BF16":
        _library("ml_dtypes", "tensors of BF16 need the package ml_dtypes: pip install 'scaffe[bf16]'")  # NumPy's type
    values = np.asarray(file.get_tensor(key))
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32, copy=False)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """The library's view of a file; whatever it raises about it becomes one line."""
    library = _library("safetensors")
    with told(path), open_input(path):
        pass  # it is there, and a file
    try:
        with library.safe_open(str(path), framework="np") as file:
            yield file
    except UserError:
        raise
    except (library.SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError,
            MemoryError) as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a safetensors file of float tensors, or a damaged one ({said})") from error


def _library(module: str, missing: str = MISSING) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(missing) from error
