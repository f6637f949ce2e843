"""With this folder on PYTHONPATH, `import cupy` in a process of its own is the pretend module, open to other ranks.

Behind it, nvidia.nvimgcodec and CUDA's driver are the pretend ones, too. With PRETEND_GPUS=N there are N GPUs, and
NCCL.
"""

import os
import sys
from functools import cache

from scaffe.layers.kernels import driver as driver_door
from tests.pretend import device, driver, make, nccl, nvimgcodec, pool

pool.Settings.shared = True
driver_door.library = cache(driver.Driver)
sys.modules.update(make())
sys.modules["nvidia.nvimgcodec"] = nvimgcodec.module()
if "PRETEND_GPUS" in os.environ:
    device.Settings.n_devices = int(os.environ["PRETEND_GPUS"])
    nccl.install()
