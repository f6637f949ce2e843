"""What a trainer asks of a backend beside kernels: scalars, waiting, batches, updates."""

from __future__ import annotations

from functools import partial
from typing import Any

from layers import device
from layers.kernels.cuda.staging import Staging
from layers.on_host import OnHost

PLACE = "device"  # where buffers that ranks share are taken from
CHECK_EVERY = 20  # iterations between two looks at the loss: each makes the host wait for the device
staging = Staging


def scalar(value: Any) -> Any:
    """The number as it is, on the device: ``float`` waits for it."""
    return value


def synchronize() -> None:
    """Wait for all that the current stream has been given."""
    device.load().cuda.get_current_stream().synchronize()


def on_host(layer_type: Any) -> Any:
    """What makes a layer that has no place on the device."""
    return partial(OnHost, layer_type)
