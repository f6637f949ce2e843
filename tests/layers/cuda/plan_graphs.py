"""Plans cuDNN's graphs for a card that is not there; prints one line a graph. Run by test_plans.py.

    python -m tests.layers.cuda.plan_graphs H100|H200 awkward|benchmarks|workspaces

The card is described by its properties alone: given the number of its multiprocessors beside them, cuDNN takes it for a
part of a card and offers no engine made for Hopper.

cuDNN lists and builds plans from a device's properties alone, but loads the driver's library first: the caller puts
one without functions in its way where there is no driver. Engines that make their kernels when they are built, as batch
norm's, get as far as loading what they have compiled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from scaffe.layers.kernels.cuda.cudnn import batch_norm as norms
from scaffe.layers.kernels.cuda.cudnn import convolution as convolutions
from scaffe.layers.kernels.cuda.cudnn import graphs, plans
from scaffe.layers.kernels.cuda.cudnn.summed_gradient import SumKey
from scaffe.layers.kernels.specs import ConvSpec
from tests.layers.cuda import benchmark_graphs

H200 = {
    "maxGridSize": [2**31 - 1, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 150_000_000_000,
    "smClockRateKHz": 1_980_000, "memClockRateKHz": 3_201_000, "memoryBusWidth": 6144, "l2CacheSize": 60 << 20,
    "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 12080, "deviceName": "NVIDIA H200"}
H100 = H200 | {"deviceName": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "memClockRateKHz": 2_619_000,
               "memoryBusWidth": 5120, "l2CacheSize": 50 << 20}
CARDS = {"H100": H100, "H200": H200}
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
SUMS = {  # gradients by data with others added; how many, and whether ReLU's backward follows
    "ResNet res2b": ((256, 256, 56, 56), 64, (1, 1), (1, 1), 1, True),
    "ResNet res2c": ((256, 256, 56, 56), 64, (1, 1), (1, 1), 0, True),
    "ResNet res3a, thinned": ((256, 256, 28, 28), 128, (1, 1), (1, 1), 1, True),
    "ResNet res3a": ((256, 256, 56, 56), 128, (1, 1), (2, 2), 1, True),
    "GoogLeNet inception_3a": ((256, 192, 28, 28), 64, (1, 1), (1, 1), 3, False),
}
REFUSED = {"odd channels": norms.NormKey(norms.FORWARD, (2, 6, 3, 4), DTYPES[0], 1e-5, True),
           "odd channels, backward": norms.NormKey(norms.BACKWARD, (2, 6, 3, 4), DTYPES[0], 1e-5, True),
           "a sum without ReLU": norms.NormKey(norms.FORWARD, (2, 8, 3, 4), DTYPES[0], 1e-5, False, True)}


def every_graph() -> Iterator[tuple[str, Any]]:
    """Every graph to plan, with its name."""
    for name, shape in SHAPES.items():
        for dtype, tf32 in PRECISIONS:
            for kind in (convolutions.FORWARD, convolutions.BY_DATA, convolutions.BY_WEIGHTS):
                spec = convolutions.widened(ConvSpec(*shape, False, np.dtype(dtype)))
                yield f"{name}, {np.dtype(dtype).name}{', TF32' if tf32 else ''}, {kind}", convolutions.ConvKey(
                    kind, spec, tf32)
    for name, (*shape, stride, n_addends, masks) in SUMS.items():
        for dtype, tf32 in PRECISIONS[1:]:  # tensor cores alone
            spec = ConvSpec(*shape, stride, (0, 0), (1, 1), 1, False, np.dtype(dtype))
            yield f"{name}, {np.dtype(dtype).name}, with a sum", SumKey(spec, tf32, n_addends, masks)
            if masks:
                yield f"{name}, {np.dtype(dtype).name}, with a sum and sign bits", SumKey(
                    spec, tf32, n_addends, masks, bits=True)
    for name, (shape, relu) in NORMS.items():
        for dtype in DTYPES:
            for kind in (norms.FORWARD, norms.BACKWARD):
                yield f"{name}, {dtype.name}, {kind}", norms.NormKey(kind, norms.four_axes(shape), dtype, 1e-5, relu)
            yield f"{name}, {dtype.name}, {norms.FORWARD} with a sum", norms.NormKey(
                norms.FORWARD, norms.four_axes(shape), dtype, 1e-5, True, True)
            yield f"{name}, {dtype.name}, {norms.FORWARD} with a sum and sign bits", norms.NormKey(
                norms.FORWARD, norms.four_axes(shape), dtype, 1e-5, True, True, True)


def plan(name: str, key: Any, place: dict[str, Any]) -> str:
    """One line: what came of a graph. Kernels of norms and sums are made from source, which wants a driver in the
    end."""
    graph = graphs.make_graph(key, **place)
    graphs.plan_graph(graph, key)
    line = f"{name}: {graph.get_execution_plan_count()} plans, "
    if not key.compiles:
        return f"{line}built {len(plans.build_plans(graph))}"
    try:
        graph.build_plan_at_index(0)
    except Exception as error:
        return line + ("compiled 1" if "cuLibraryLoadData" in str(error) else f"built 0: {str(error).splitlines()[0]}")
    return f"{line}built 1"


def refusal(name: str, key: norms.NormKey, place: dict[str, Any]) -> str:
    """One line: that a graph has no plan."""
    try:
        graphs.plan_graph(graphs.make_graph(key, **place), key)
    except graphs.frontend().cudnnGraphNotSupportedError:
        return f"{name}: refused"
    return f"{name}: planned"


def engines(name: str, key: Any, place: dict[str, Any]) -> str:
    """One line: whether a graph has an engine that is compiled already, else the seconds that compiling one takes."""
    if key.dtype == np.float32 and not key.tf32 and getattr(key, "bias", False):
        return f"{name}: not asked of cuDNN"  # it fuses float32 on tensor cores alone
    graph = graphs.make_graph(key, **place)
    graphs.plan_graph(graph, key)
    start = time.perf_counter()
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
        except Exception as error:
            if "cuLibraryLoadData" in str(error):  # compiled; only a driver can load it
                return f"{name}: compiled in {time.perf_counter() - start:.2f} s"
            continue
        return f"{name}: precompiled {graph.get_plan_name_at_index(index).split('_')[0]}"
    return f"{name}: none"


def workspaces(name: str, key: Any, place: dict[str, Any]) -> str:
    """One line: bytes in which each plan works that could be timed, as ``cudnn_workspaces.json`` has them."""
    graph = graphs.make_graph(key, **place)
    graphs.plan_graph(graph, key)
    return f"{name}: {[graph.get_workspace_size_plan_at_index(index) for index in plans.build_plans(graph)]}"


def main(card: str, which: str) -> None:
    cudnn = graphs.frontend()
    place = {"device_property": cudnn.create_device_properties(json.dumps(CARDS[card])), "sm_version": 90}
    if which == "benchmarks":
        for key, name in benchmark_graphs.every_graph().items():
            print(engines(name, key, place), flush=True)
        return
    if which == "workspaces":
        for name, key in benchmark_graphs.with_micro_batches("caffenet").items():
            print(workspaces(name, key, place), flush=True)
        return
    for name, key in every_graph():
        print(plan(name, key, place), flush=True)
    for name, key in REFUSED.items():
        print(refusal(name, key, place), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
