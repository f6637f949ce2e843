"""Makes ``import caffe`` give this package, so that code written for Caffe runs unchanged."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

NAME, OURS = "caffe", "scaffe"


class _Alias(MetaPathFinder, Loader):
    """Finds ``caffe`` and ``caffe.x.y``, and returns this package's own modules, not second copies of them."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        ours = OURS + name.removeprefix(NAME)
        if name.partition(".")[0] != NAME or (name != NAME and importlib.util.find_spec(ours) is None):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Stand(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(OURS + module.__name__.removeprefix(NAME))


class _Stand(ModuleType):
    """A placeholder on which the import system sets the alias's spec; ``exec_module`` puts our module in its place."""


def install_as_caffe() -> None:
    """Make ``import caffe`` and ``from caffe.proto import caffe_pb2`` give this package, in this process."""
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())
