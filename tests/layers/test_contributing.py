"""The layer that CONTRIBUTING adds, as it stands there: one file beside the others is all it takes."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECK = """
import sys, numpy as np
from scaffe import layers
layers.__path__.append(sys.argv[1])  # as if the file lay among the others
import scaffe as caffe
from tests.layers.gradient_check import Case, check_exhaustive
for in_place in (False, True):
    check_exhaustive(Case('type: "Cube"', ((2, 3, 2, 2),), in_place=in_place))
open("net.prototxt", "w").write('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 } } } '
                                'layer { name: "c" type: "Cube" bottom: "x" top: "y" }')
net = caffe.Net("net.prototxt", caffe.TEST)
print(net.forward(x=np.array([-1, 0, 2, 3]))["y"].tolist())
"""


def test_the_layer_of_the_guide(tmp_path):
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Add a layer")[1].split("\n## ")[0]
    code = [line for line in section.splitlines() if line.startswith("    ") or not line]
    package = tmp_path / "more_layers"
    package.mkdir()
    (package / "cube.py").write_text(textwrap.dedent("\n".join(code)))
    done = subprocess.run([sys.executable, "-c", CHECK, str(package)], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT)}, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[-1.0, 0.0, 8.0, 27.0]"
