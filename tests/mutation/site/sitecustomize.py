"""With this folder on PYTHONPATH, every process of a job runs one file changed: the one that MUTANT names.

The variable holds the end of the file's path, the text to replace, and what stands in its place, as JSON. Nothing is
changed on disk.
"""

import json
import os
from importlib.machinery import SourceFileLoader

_original = SourceFileLoader.get_code


def _changed(self, fullname):
    path, old, new = json.loads(os.environ["MUTANT"])
    if not self.path.endswith(path):
        return _original(self, fullname)
    source = self.get_data(self.path).decode()
    if old not in source:
        raise ImportError(f"{path} has no {old!r} to take out")
    return compile(source.replace(old, new, 1), self.path, "exec", dont_inherit=True)


if os.environ.get("MUTANT"):
    SourceFileLoader.get_code = _changed
