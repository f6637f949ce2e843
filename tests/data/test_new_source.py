"""A new kind of database is one file beside the others: layers of type Data read it then."""

import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
"""A folder of NumPy files, an image each; the label stands at the end of a file's name, as in cat_3.npy."""

from pathlib import Path

import numpy as np

from scaffe.data.sources.database import database_kind
from scaffe.data.sources.source import Run


@database_kind("npy", lambda path: any(path.glob("*.npy")))
class NpyFolder:
    """Images of uint8 or float32, (channels, height, width)."""

    def __init__(self, path, colour):
        self._files = sorted(Path(path).glob("*.npy"))
        self.n_records = len(self._files)

    def read(self, records):
        for record in records:
            image = np.load(self._files[record], allow_pickle=False)
            label = int(self._files[record].stem.rpartition("_")[2])
            yield Run(image.reshape(-1), np.zeros(1, np.int64), np.array([label]), image.shape)

    def name_of(self, record):
        return str(self._files[record])

    def close(self):
        pass
'''
USE = """
import sys
from scaffe.data import sources
sources.__path__.append(sys.argv[1])  # as if the file lay among the others
import scaffe as caffe
net = caffe.Net("net.prototxt", caffe.TEST)
net.forward()
print(net.blobs["x"].data.tolist(), net.blobs["y"].data.tolist())
"""
NET = 'layer { name: "in" type: "Data" top: "x" top: "y" data_param { source: "images" batch_size: 2 } }'


def test_a_new_kind_of_database_is_one_file(tmp_path):
    for folder in ("more_sources", "images"):
        (tmp_path / folder).mkdir()
    (tmp_path / "more_sources" / "npy.py").write_text(SOURCE)
    (tmp_path / "net.prototxt").write_text(NET)
    images = np.arange(16, dtype=np.float32).reshape(2, 2, 1, 4) / 4
    for image, name in zip(images, ("a_7", "b_1"), strict=True):
        np.save(tmp_path / "images" / f"{name}.npy", image)
    done = subprocess.run([sys.executable, "-c", USE, "more_sources"], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT)}, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{images.tolist()} [7.0, 1.0]"
