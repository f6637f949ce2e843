"""Runs exported modules: ``python compare_exports.py FOLDER...``; each has net.py, net.safetensors, inputs and outputs.

Prints, a line a folder, the largest difference from our outputs over the largest output, or what went wrong.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch


def compare(folder):
    """The largest difference. Raises AssertionError for other names or shapes."""
    spec = importlib.util.spec_from_file_location("net", folder / "net.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs, expected = (dict(np.load(folder / f"{what}.npz")) for what in ("inputs", "outputs"))
    with torch.no_grad():
        found = module.load()(*(torch.from_numpy(array) for array in inputs.values()))
    if isinstance(found, torch.Tensor):
        assert len(expected) == 1
        found = dict.fromkeys(expected, found)
    assert found.keys() == expected.keys()
    assert all(found[name].shape == array.shape for name, array in expected.items()), {
        name: (found[name].shape, array.shape) for name, array in expected.items()}
    return max(np.abs(found[name].numpy() - array).max(initial=0) / max(np.abs(array).max(initial=0), 1e-30)
               for name, array in expected.items())


for name in sys.argv[1:]:
    try:
        print(name, compare(Path(name)))
    except Exception as error:  # noqa: BLE001 - the caller reports it
        print(name, " ".join(f"{type(error).__name__}: {error}".split()))
