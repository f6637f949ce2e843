"""With this folder on PYTHONPATH, `import cupy` in a process of its own is the pretend module, open to other ranks.

Behind it, nvidia.nvimgcodec is the pretend one, too.
"""

import importlib.util
import sys
from types import ModuleType

from tests.pretend import make, nvimgcodec, pool

pool.Settings.shared = True
sys.modules.update(make())
if importlib.util.find_spec("nvidia") is None:
    sys.modules["nvidia"] = ModuleType("nvidia")
sys.modules["nvidia.nvimgcodec"] = nvimgcodec.module()
