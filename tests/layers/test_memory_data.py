"""MemoryData: batches out of arrays, in order, from the first again at the end."""

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig

TEXT = 'type: "MemoryData" memory_data_param { batch_size: 2 channels: 3 height: 2 width: 1 }'
DATA = np.arange(24, dtype=np.float32).reshape(4, 3, 2, 1)
LABELS = np.array([5, 6, 7, 8], np.float32)


def test_batches_follow_each_other():
    rig = Rig(TEXT, [])
    rig.layer.load(DATA, LABELS.reshape(4, 1, 1, 1))
    for rows in ([0, 1], [2, 3], [0, 1]):
        data, labels = rig.forward()
        assert np.array_equal(data, DATA[rows])
        assert np.array_equal(labels, LABELS[rows])


def test_mistakes():
    rig = Rig(TEXT, [])
    with pytest.raises(LayerError, match="no data yet"):
        rig.forward()
    with pytest.raises(LayerError, match=r"a multiple of 2, 3, 2, 1\), got \(3, 3, 2, 1\)"):
        rig.layer.load(DATA[:3], LABELS[:3])
    with pytest.raises(LayerError, match="expected 4 labels, one an image, got 3"):
        rig.layer.load(DATA, LABELS[:3])
    with pytest.raises(LayerError, match=r"above 0; they are \(2, 0, 0, 0\)"):
        Rig('type: "MemoryData" memory_data_param { batch_size: 2 }', [])
