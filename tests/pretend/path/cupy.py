"""With this folder on PYTHONPATH, `import cupy` in a process of its own is the pretend module, open to other ranks."""

import sys

from tests.pretend import make, pool

pool.Settings.shared = True
sys.modules.update(make())
