"""Plans cuDNN's convolution graphs for an H200 that is not there; prints one line a graph. Run by test_plans.py.

cuDNN lists and builds plans from a device's properties alone, but loads the driver's library first: the caller puts
one without functions in its way where there is no driver. Engines that make their kernels when they are built cannot
be built so, but most can.
"""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np

from layers.kernels.cuda import cudnn_graphs as graphs
from layers.kernels.specs import ConvSpec

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


def main() -> None:
    cudnn = graphs.frontend()
    place = {"device_property": cudnn.create_device_properties(json.dumps(H200)), "sm_version": 90, "sm_count": 132}
    for name, shape in SHAPES.items():
        for dtype, tf32 in PRECISIONS:
            for kind in (graphs.FORWARD, graphs.BY_DATA, graphs.BY_WEIGHTS):
                key = graphs.Key(kind, graphs.widened(ConvSpec(*shape, False, np.dtype(dtype))), tf32)
                graph = graphs.make_graph(key, **place)
                graphs.plan_graph(graph, key)
                built = graphs.build_plans(graph)
                print(f"{name}, {np.dtype(dtype).name}{', TF32' if tf32 else ''}, {kind}: "
                      f"{graph.get_execution_plan_count()} plans, built {len(built)}", flush=True)


if __name__ == "__main__":
    main()
