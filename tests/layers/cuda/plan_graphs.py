"""Plans cuDNN's graphs for an H200 that is not there; prints one line a graph. Run by test_plans.py.

cuDNN lists and builds plans from a device's properties alone, but loads the driver's library first: the caller puts
one without functions in its way where there is no driver. Engines that make their kernels when they are built, as batch
norm's, get as far as loading what they have compiled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from scaffe.layers.kernels.cuda.cudnn import conv_graphs as convolutions
from scaffe.layers.kernels.cuda.cudnn import graphs
from scaffe.layers.kernels.cuda.cudnn import norm_graphs as norms
from scaffe.layers.kernels.specs import ConvSpec

H200 = {
    "maxGridSize": [2**31 - 1, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 150_000_000_000,
    "smClockRateKHz": 1_980_000, "memClockRateKHz": 3_201_000, "memoryBusWidth": 6144, "l2CacheSize": 60 << 20,
    "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 12080, "deviceName": "NVIDIA H200"}
SHAPES = {
    "CaffeNet conv1": ((256, 3, 227, 227), 96, (11, 11), (4, 4), (0, 0), (1, 1), 1),
    "CaffeNet conv2": ((256, 96, 27, 27), 256, (5, 5), (1, 1), (2, 2), (1, 1), 2),
    "ResNet shortcut": ((256, 256, 56, 56), 512, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    "depthwise": ((32, 64, 28, 28), 64, (3, 3), (1, 1), (1, 1), (1, 1), 64),
    "dilated": ((4, 64, 28, 28), 64, (3, 3), (1, 1), (2, 2), (2, 2), 1),
    "one axis": ((8, 16, 100), 32, (5,), (2,), (2,), (1,), 1),
    "three axes": ((4, 8, 16, 28, 28), 16, (3, 3, 3), (1, 2, 2), (1, 1, 1), (1, 1, 1), 1),
}
PRECISIONS = ((np.float32, False), (np.float32, True), (ml_dtypes.bfloat16, False), (np.float16, False))
DTYPES = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16)))


NORMS = {  # shapes that cuDNN has an engine for, and whether ReLU follows
    "ResNet bn_conv1": ((256, 64, 112, 112), True), "ResNet shortcut": ((256, 256, 56, 56), False),
    "ResNet last": ((32, 2048, 7, 7), True), "rows": ((128, 1000), True), "five axes": ((2, 16, 4, 5, 6), True),
}
REFUSED = {"odd channels": (norms.FORWARD, (2, 6, 3, 4)), "odd channels, backward": (norms.BACKWARD, (2, 6, 3, 4))}


def every_graph() -> Iterator[tuple[str, Any]]:
    """Every graph to plan, with its name."""
    for name, shape in SHAPES.items():
        for dtype, tf32 in PRECISIONS:
            for kind in (convolutions.FORWARD, convolutions.BY_DATA, convolutions.BY_WEIGHTS):
                spec = convolutions.widened(ConvSpec(*shape, False, np.dtype(dtype)))
                yield f"{name}, {np.dtype(dtype).name}{', TF32' if tf32 else ''}, {kind}", convolutions.ConvKey(
                    kind, spec, tf32)
    for name, (shape, relu) in NORMS.items():
        for dtype in DTYPES:
            for kind in (norms.FORWARD, norms.BACKWARD):
                yield f"{name}, {dtype.name}, {kind}", norms.NormKey(kind, norms.four_axes(shape), dtype, 1e-5, relu)


def plan(name: str, key: Any, place: dict[str, Any]) -> str:
    """One line: what came of a graph. Norms' kernels are made from source, which wants a driver in the end."""
    graph = graphs.make_graph(key, **place)
    graphs.plan_graph(graph, key)
    line = f"{name}: {graph.get_execution_plan_count()} plans, "
    if not isinstance(key, norms.NormKey):
        return f"{line}built {len(graphs.build_plans(graph))}"
    try:
        graph.build_plan_at_index(0)
    except Exception as error:
        return line + ("compiled 1" if "cuLibraryLoadData" in str(error) else f"built 0: {str(error).splitlines()[0]}")
    return f"{line}built 1"


def refusal(name: str, kind: str, shape: tuple[int, ...], place: dict[str, Any]) -> str:
    """One line: that a graph has no plan."""
    key = norms.NormKey(kind, shape, np.dtype(np.float32), 1e-5, True)
    try:
        graphs.plan_graph(graphs.make_graph(key, **place), key)
    except graphs.frontend().cudnnGraphNotSupportedError:
        return f"{name}: refused"
    return f"{name}: planned"


def main() -> None:
    cudnn = graphs.frontend()
    place = {"device_property": cudnn.create_device_properties(json.dumps(H200)), "sm_version": 90, "sm_count": 132}
    for name, key in every_graph():
        print(plan(name, key, place), flush=True)
    for name, (kind, shape) in REFUSED.items():
        print(refusal(name, kind, shape, place), flush=True)


if __name__ == "__main__":
    main()
