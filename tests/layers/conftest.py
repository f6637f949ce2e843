"""SCAFFE_TEST_DEVICE: cpu (the default), cuda, or pretend, which is cuda on the pretend CuPy."""

import os
import sys

if os.environ.get("SCAFFE_TEST_DEVICE") == "pretend":
    from tests import pretend

    sys.modules.update(pretend.make())
    os.environ["SCAFFE_TEST_DEVICE"] = "cuda"
