"""ONNX Runtime or OpenCV's dnn on an ONNX file: "N" on standard input runs N forward passes and answers the seconds.

    python benchmarks/peers/inference.py ort|opencv MODEL.onnx INPUT.npy N_THREADS OUTPUT.npy CLOCK

CLOCK is a function of Python's ``time``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np


def onnx_runtime(model: str, x: np.ndarray, n_threads: int) -> Callable[[], np.ndarray]:
    """One forward pass of ONNX Runtime, as it comes but for the threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = n_threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})[0]


def opencv(model: str, x: np.ndarray, n_threads: int) -> Callable[[], np.ndarray]:
    """One forward pass of OpenCV's dnn, as it comes but for the threads."""
    import cv2

    cv2.setNumThreads(n_threads)
    net = cv2.dnn.readNetFromONNX(model)

    def forward() -> np.ndarray:
        net.setInput(x)
        return net.forward()

    return forward


def main() -> None:
    """Answer lines until the input ends."""
    kind, model, source, n_threads, output, name = sys.argv[1:]
    clock = getattr(time, name)
    forward = {"ort": onnx_runtime, "opencv": opencv}[kind](model, np.load(source), int(n_threads))
    np.save(output, forward())
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        start = clock()
        for _ in range(int(line)):
            forward()
        print(json.dumps(clock() - start), flush=True)


if __name__ == "__main__":
    main()
