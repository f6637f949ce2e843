"""Layers of data in nets: HDF5 files, image lists and windows, from prototxt to blobs."""

import numpy as np
import pytest

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.feeds.layer_feed import Share
from scaffe.data.records.datum import encode_image
from scaffe.nets.devices import load_kernels
from scaffe.nets.setup import Selection, net_from_file

TEST = 1


def net(folder, text):
    (folder / "net.prototxt").write_text(text)
    return net_from_file(str(folder / "net.prototxt"), Selection(TEST), load_kernels(1), Share())


def values(made, *names):
    made.forward()
    return [made.blobs[name].data.copy() for name in names]


def test_hdf5_data_of_any_number_of_axes(tmp_path):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(2)
    written = {"image": rng.random((5, 3, 2, 4), np.float32), "vector": rng.random((5, 7), np.float32),
               "scalar": rng.random(5, np.float32)}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in written.items():
            file[name] = array
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'a.h5'}\n")
    made = net(tmp_path, f'''layer {{ name: "d" type: "HDF5Data" top: "image" top: "vector" top: "scalar"
        hdf5_data_param {{ source: "{tmp_path / 'list.txt'}" batch_size: 2 }} }}
        layer {{ name: "p" type: "Power" bottom: "image" top: "p" power_param {{ scale: 2 }} }}''')
    for rows in ([0, 1], [2, 3], [4, 0]):
        image, vector, scalar, doubled = values(made, "image", "vector", "scalar", "p")
        assert np.array_equal(image, written["image"][rows])
        assert np.array_equal(vector, written["vector"][rows])
        assert np.array_equal(scalar, written["scalar"][rows])
        assert np.array_equal(doubled, 2 * written["image"][rows])


@pytest.mark.parametrize("prefetch", [1, 3, 9])
def test_batches_read_ahead_are_the_same_batches(tmp_path, prefetch):
    pytest.importorskip("lmdb")
    records = np.random.default_rng(3).integers(0, 256, (7, 1, 2, 3), np.uint8)
    write_lmdb(tmp_path / "db", [(b"%08d" % i, encode_image(r, i)) for i, r in enumerate(records)])
    made = net(tmp_path, f'''layer {{ name: "d" type: "Data" top: "data" top: "label"
        data_param {{ source: "{tmp_path / 'db'}" backend: LMDB batch_size: 2 prefetch: {prefetch} }} }}''')
    for batch in range(9):
        rows = [(2 * batch + i) % len(records) for i in range(2)]
        data, label = values(made, "data", "label")
        assert np.array_equal(data, records[rows])
        assert label.tolist() == rows


def test_images_without_their_labels(tmp_path):
    pytest.importorskip("lmdb")
    records = np.random.default_rng(3).integers(0, 256, (3, 1, 2, 3), np.uint8)
    write_lmdb(tmp_path / "db", [(b"%08d" % i, encode_image(r, i)) for i, r in enumerate(records)])
    made = net(tmp_path, f'''layer {{ name: "d" type: "Data" top: "data"
        data_param {{ source: "{tmp_path / 'db'}" backend: LMDB batch_size: 3 }} }}''')
    assert np.array_equal(values(made, "data")[0], records)


@pytest.fixture
def images(tmp_path):
    """Four grey images of different shapes and their list, labels 10 to 13."""
    cv2 = pytest.importorskip("cv2")
    made = [np.random.default_rng(i).integers(0, 256, (4 + i, 6 - i), np.uint8) for i in range(4)]
    for i, image in enumerate(made):
        cv2.imwrite(str(tmp_path / f"{i}.png"), image)
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {10 + i}\n" for i in range(4)))
    return made


def test_image_data_of_changing_shapes(tmp_path, images):
    made = net(tmp_path, f'''layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        image_data_param {{ source: "{tmp_path / 'list.txt'}" root_folder: "{tmp_path}/" batch_size: 1
                            is_color: false }} }}
        layer {{ name: "p" type: "Power" bottom: "data" top: "p" power_param {{ shift: 1 }} }}''')
    for i in (0, 1, 2, 3, 0):
        data, label, shifted = values(made, "data", "label", "p")
        assert np.array_equal(data, images[i][None, None])
        assert label.tolist() == [10 + i]
        assert np.array_equal(shifted, data + 1)


def test_image_data_resized_to_one_shape(tmp_path, images):
    made = net(tmp_path, f'''layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        transform_param {{ scale: 0.5 }} image_data_param {{ source: "{tmp_path / 'list.txt'}" batch_size: 3
        root_folder: "{tmp_path}/" new_height: 6 new_width: 8 }} }}''')
    data, label = values(made, "data", "label")
    assert data.shape == (3, 3, 6, 8)
    assert np.array_equal(data[:, 0], data[:, 2])  # grey in colour
    assert label.tolist() == [10, 11, 12]


def test_windows_inside_and_outside(tmp_path, images):
    lines = []
    for i, image in enumerate(images):
        height, width = image.shape
        lines.append(f"# {i}\n{tmp_path / f'{i}.png'}\n3\n{height}\n{width}\n2\n"
                     f"{i + 1} 0.9 0 0 {width - 1} {height - 1}\n0 0.1 0 0 1 1\n")
    (tmp_path / "windows.txt").write_text("".join(lines))
    made = net(tmp_path, f'''layer {{ name: "d" type: "WindowData" top: "data" top: "label"
        transform_param {{ crop_size: 4 }} window_data_param {{ source: "{tmp_path / 'windows.txt'}" batch_size: 8
        fg_threshold: 0.5 bg_threshold: 0.5 fg_fraction: 0.25 context_pad: 0 crop_mode: "warp"
        cache_images: true }} }}''')
    data, label = values(made, "data", "label")
    assert data.shape == (8, 3, 4, 4)
    assert sorted(label > 0) == [False] * 6 + [True] * 2
    for window, kind in zip(data, label):
        if kind > 0 and images[int(kind) - 1].shape == (4, 4):
            assert np.array_equal(window[0], images[int(kind) - 1])
