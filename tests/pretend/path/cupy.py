"""With this folder on PYTHONPATH, `import cupy` in a process of its own is the pretend module, open to other ranks.

Behind it, nvidia.nvimgcodec is the pretend one, too.
"""

import sys

from tests.pretend import make, nvimgcodec, pool

pool.Settings.shared = True
sys.modules.update(make())
sys.modules["nvidia.nvimgcodec"] = nvimgcodec.module()
