"""What the pretend nvidia.nvimgcodec has, the real one has too, where it is installed. Needs no driver."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tests.pretend import nvimgcodec as ours

os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
real: Any = pytest.importorskip("nvidia.nvimgcodec", reason="nvImageCodec is not installed")
cv2 = pytest.importorskip("cv2")


def test_the_real_one_has_every_name() -> None:
    module = ours.module()
    names = [name for name in vars(module) if not name.startswith("__")]
    assert not [name for name in names if not hasattr(real, name)]
    for group in ("BackendKind", "ColorSpec", "SampleFormat"):
        assert not [name for name in vars(getattr(module, group)) if not hasattr(getattr(real, group), name)]


def test_its_calls_take_our_arguments() -> None:
    for name in ("device_id", "max_num_cpu_threads", "backends", "options"):
        assert f"{name}:" in real.Decoder.__init__.__doc__
    for name in ("params", "cuda_stream"):
        assert f"{name}:" in real.Decoder.decode.__doc__
    real.DecodeParams(apply_exif_orientation=False, color_spec=real.ColorSpec.SRGB,
                      sample_format=real.SampleFormat.I_BGR)
    assert real.Backend(real.BackendKind.HW_GPU_ONLY).backend_kind == real.BackendKind.HW_GPU_ONLY


def test_it_reads_files_in_memory_that_is_not_to_be_written() -> None:
    file = cv2.imencode(".jpg", np.zeros((40, 60, 3), np.uint8))[1].reshape(-1)
    mapped = np.concatenate([file, file])
    mapped.flags.writeable = False
    stream = real.CodeStream(mapped[len(file):])
    assert (stream.height, stream.width) == (40, 60)
