"""Caffe's own Python tests with scaffe in place of caffe, if CAFFE_TREE names a tree of Caffe's and six is there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scaffe.runs import ROOT

TREE = os.environ.get("CAFFE_TREE", "")
RUN = """import sys, unittest, scaffe
scaffe.install_as_caffe()
found = unittest.defaultTestLoader.discover(sys.argv[1])
done = unittest.TextTestRunner().run(found)
print(f"ran {done.testsRun}")
sys.exit(not done.wasSuccessful())
"""


@pytest.mark.skipif(not TREE or importlib.util.find_spec("six") is None, reason="CAFFE_TREE is not set, or six missing")
def test_they_pass():
    folder = Path(TREE).absolute() / "python/caffe/test"
    done = subprocess.run([sys.executable, "-c", RUN, str(folder)], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])})
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split("ran ")[-1]) >= 50
