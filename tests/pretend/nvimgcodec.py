"""nvidia.nvimgcodec: decodes on the host, uploads on the stream it is given, keeps to one thread and one device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

PADDING = 5  # bytes behind each row of an image, which the real one may have too


class Settings:
    """What goes wrong, and what was decoded.

    Attributes:
        fault: (number of the call, file) -> whether the file cannot be decoded; may raise.
        threads: of each file that was decoded, the thread.
        devices: those that were decoded on.
    """

    fault: Callable[[int, np.ndarray], bool] = staticmethod(lambda call, file: False)
    threads: list[str] = []
    devices: set[int] = set()
    n_calls = 0


class CodeStream:
    """A file in memory, which stays the caller's."""

    def __init__(self, file: np.ndarray) -> None:
        if file.dtype != np.uint8 or file.ndim != 1:
            raise TypeError("a file is uint8, 1-D")
        self.file = file


class DecodeParams:
    """What is decoded to."""

    def __init__(self, apply_exif_orientation: bool = True, color_spec: str = "SRGB", allow_any_depth: bool = False,
                 sample_format: str = "I_AUTO_COMPONENTS") -> None:
        self.asked = (apply_exif_orientation, color_spec, allow_any_depth, sample_format)


class Image:
    """An image in device memory, its rows padded."""

    def __init__(self, pixels: np.ndarray, stream: Any) -> None:
        import cupy

        height, width, _ = pixels.shape
        rows = np.full((height, 3 * width + PADDING), 77, np.uint8)
        rows[:, :3 * width] = pixels.reshape(height, 3 * width)
        self._memory = cupy.empty(rows.shape, np.uint8)
        self._memory.set(rows, stream=stream)
        self._shape = pixels.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where it lies."""
        inner = self._memory.__cuda_array_interface__
        return {**inner, "shape": self._shape, "strides": (self._memory.strides[0], 3, 1)}


class Decoder:
    """A decoder, which one thread at a time may use: here, the one that made it."""

    def __init__(self, device_id: int = -1, max_num_cpu_threads: int = 0, backends: Sequence[Any] | None = None,
                 options: str = "") -> None:
        self._device, self._thread = device_id, threading.current_thread()
        if not backends or any(kind == "CPU_ONLY" for kind in backends):
            raise ValueError("a decoder on the host")

    def decode(self, srcs: Sequence[CodeStream], *, params: DecodeParams, cuda_stream: int = 0) -> list[Image | None]:
        """The images, None where a file cannot be decoded; their memory is written on the stream."""
        import cupy

        if threading.current_thread() is not self._thread or cupy.cuda.runtime.getDevice() != self._device:
            raise RuntimeError("another thread's decoder, or another device's")
        if params.asked != (False, "SRGB", False, "I_BGR"):
            raise ValueError(f"another format: {params.asked}")
        Settings.n_calls += 1
        Settings.devices.add(self._device)
        return [self._image(source.file, cupy.cuda.ExternalStream(cuda_stream)) for source in srcs]

    def _image(self, file: np.ndarray, stream: Any) -> Image | None:
        from scaffe.data.records.decode import Colour, decode

        pixels = None if Settings.fault(Settings.n_calls, file) else decode(file, Colour.BGR)
        if pixels is None:
            return None
        Settings.threads.append(threading.current_thread().name)
        return Image(pixels, stream)


def module() -> ModuleType:
    """A new one, with nothing decoded and nothing wrong."""
    Settings.fault, Settings.threads, Settings.n_calls = staticmethod(lambda call, file: False), [], 0
    Settings.devices = set()
    made = ModuleType("nvidia.nvimgcodec")
    kinds = ("CPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU", "HW_GPU_ONLY")
    made.__dict__.update({
        "__version__": "0.9.0", "CodeStream": CodeStream, "Decoder": Decoder, "DecodeParams": DecodeParams,
        "Backend": lambda kind: kind, "BackendKind": SimpleNamespace(**{kind: kind for kind in kinds}),
        "ColorSpec": SimpleNamespace(SRGB="SRGB"), "SampleFormat": SimpleNamespace(I_BGR="I_BGR")})
    return made
