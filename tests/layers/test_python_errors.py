"""Mistakes in a user's layer: one line that names layer, file and line; what his own code raises keeps its type."""

from __future__ import annotations

import re
import sys

import pytest

import scaffe as caffe
from scaffe.errors import users_line, users_traceback

GOOD = """
import caffe

class Good(caffe.Layer):
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        pass
"""
INSIDE = "class Bad(Good):\n    def {}(self, *blobs):\n        {}\n"
NET = """
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
layer {{ name: "mine" type: "Python" bottom: "data" top: "out" python_param {{ module: "{}" layer: "{}" }} }}
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a net whose layer ``mine`` is a class of a module with this text."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(text: str, layer: str = "Bad", module: str = "users_own"):
        sys.modules.pop("users_own", None)
        (tmp_path / "users_own.py").write_text(text)
        (tmp_path / "net.prototxt").write_text(NET.format(module, layer))
        return caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)

    yield make
    sys.modules.pop("users_own", None)


@pytest.mark.parametrize("module", [".", "", ".users_own", "users_own.", "users own", "os;path", "/etc/passwd"])
def test_what_is_no_modules_name(make, module):
    with pytest.raises(RuntimeError, match="layer 'mine' .Python.: python_param.module .* is no module's name$"):
        make(GOOD, module=module)


@pytest.mark.parametrize(("text", "said"), [
    ("x = 1\ndef f(:\n", r"cannot import python_param.module 'users_own': .*users_own.py, line 2: invalid syntax"),
    (GOOD, r"module 'users_own' \(.*users_own.py\) has no 'Bad' \(python_param.layer\)"),
    ("def Bad():\n    raise SystemExit(7)\n", r"'Bad' of module 'users_own' \(.*\) is no subclass of caffe.Layer"),
    ("class Bad:\n    pass\n", ".* is no subclass of caffe.Layer"),
    ("from os import system as Bad", ".* is no subclass of caffe.Layer"),
    ("Bad = 3", ".* is no subclass of caffe.Layer"),
    ("\0", "cannot import python_param.module 'users_own': .*null bytes"),
])
def test_a_module_without_the_layer(make, text, said):
    with pytest.raises(RuntimeError, match=f"net.prototxt: layer 'mine' .Python.: {said}") as caught:
        make(text)
    assert "\n" not in str(caught.value)
    assert users_traceback(caught.value) == ""


@pytest.mark.parametrize(("text", "kind", "said"), [
    ("\n1 / 0", ZeroDivisionError, "importing 'users_own' raised ZeroDivisionError: division by zero"),
    ("import nosuch_thing", ImportError, "importing 'users_own' raised .* No module named 'nosuch_thing'"),
    ("import sys\nsys.exit(3)", RuntimeError, r"importing 'users_own' called sys.exit\(3\)"),
    (GOOD + INSIDE.format("setup", "raise KeyError('k')"), KeyError, "Bad.setup raised KeyError: 'k'"),
    (GOOD + INSIDE.format("setup", "raise ValueError('no\\nway')"), ValueError, "Bad.setup raised ValueError: no way"),
    (GOOD + INSIDE.format("setup", "raise SystemExit"), RuntimeError, r"Bad.setup called sys.exit\(None\)"),
    (GOOD + INSIDE.format("__init__", "self.x = y"), NameError, "Bad raised NameError: name 'y' is not defined"),
    (GOOD + INSIDE.format("reshape", "blobs[0][5]"), IndexError, "Bad.reshape raised IndexError"),
])
def test_what_the_users_own_code_raises(make, text, kind, said):
    with pytest.raises(kind) as caught:
        make(text)
    line = users_line(caught.value) or str(caught.value)
    assert re.search(rf"layer 'mine' \(Python\): {said}.* \(.*users_own.py, line \d+\)$", line), line
    assert "\n" not in line
    shown = users_traceback(caught.value)
    assert "users_own.py" in shown
    assert "importlib" not in shown
    assert "layers/python.py" not in shown


def test_forward_and_backward(make):
    net = make(GOOD + INSIDE.format("forward", "raise IndexError('far')"))
    with pytest.raises(IndexError, match="far") as caught:
        net.forward()
    assert caught.value.__notes__[0].startswith("layer 'mine' (Python): Bad.forward raised IndexError: far (")
    net = make(GOOD + "class Bad(caffe.Layer):\n    pass\n", layer="Good")
    with pytest.raises(NotImplementedError, match="Good has no backward"):
        net.layers[1].backward([], [], [])
