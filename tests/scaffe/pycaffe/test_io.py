"""``caffe.io``, ``Classifier``, ``Detector`` and ``coord_map``."""

import subprocess
import sys

import numpy as np
import pytest

import scaffe as caffe
from scaffe import layers as L
from scaffe.layers.kernels import device
from tests.scaffe.pycaffe.pycaffe_nets import SMALL
from tests.scaffe.runs import ROOT

NET = SMALL.replace("dim: 2 dim: 5 dim: 6", "dim: 3 dim: 5 dim: 5")


@pytest.fixture
def cv2():
    return pytest.importorskip("cv2")


def bilinear(image, y, x):
    """One point of an image, zero outside, from its four neighbours."""
    total = np.zeros(image.shape[2])
    for row in (int(np.floor(y)), int(np.floor(y)) + 1):
        for column in (int(np.floor(x)), int(np.floor(x)) + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


@pytest.mark.parametrize(("channels", "shape"), [(3, (4, 9)), (1, (13, 5)), (2, (4, 9)), (5, (13, 1))])
def test_resize(channels, shape):
    image = np.random.default_rng(0).random((7, 5, channels))
    found = caffe.io.resize_image(image, shape)
    least = image.min() if channels in (1, 3) else 0
    for i, j in np.ndindex(*shape):
        if channels in (1, 3):
            y, x = (i + 0.5) * 7 / shape[0] - 0.5, (j + 0.5) * 5 / shape[1] - 0.5
        else:
            y, x = i * 6 / (shape[0] - 1), j * 4 / max(shape[1] - 1, 1)
        np.testing.assert_allclose(found[i, j], bilinear(image - least, y, x) + least, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32
    assert (caffe.io.resize_image(np.full((3, 3, 3), 0.7), (9, 2)) == np.float32(0.7)).all()
    with pytest.raises(ValueError, match="interp_order must be 0"):
        caffe.io.resize_image(image, shape, interp_order=6)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_resize_by_splines(channels):
    """A cubic passes through the old pixels where new ones lie on them; as areas, no value leaves the image's range."""
    pytest.importorskip("scipy")
    image = np.random.default_rng(1).random((5, 4, channels))
    np.testing.assert_allclose(caffe.io.resize_image(image, (5, 4), interp_order=3), image, rtol=1e-5, atol=1e-6)
    large = caffe.io.resize_image(image, (9, 7) if channels == 2 else (15, 12), interp_order=3)
    middle = large[::2, ::2] if channels == 2 else large[1::3, 1::3]
    np.testing.assert_allclose(middle, image, rtol=1e-4, atol=1e-4)
    if channels != 2:
        assert large.min() >= np.float32(image.min()) and large.max() <= np.float32(image.max())


def test_splines_need_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    with pytest.raises(ValueError, match="interp_order 3 needs SciPy"):
        caffe.io.resize_image(np.zeros((3, 3, 3)), (2, 2), interp_order=3)


def test_ten_crops():
    image = np.arange(5 * 6 * 2, dtype=np.float32).reshape(5, 6, 2)
    crops = caffe.io.oversample([image, -image], (2, 4))
    assert crops.shape == (20, 2, 4, 2)
    for crop, (y, x) in zip(crops, [(0, 0), (0, 2), (3, 0), (3, 2), (1, 1)]):
        np.testing.assert_array_equal(crop, image[y:y + 2, x:x + 4])
    np.testing.assert_array_equal(crops[5:10], crops[:5, :, ::-1])
    np.testing.assert_array_equal(crops[10:], -crops[:10])


def test_images_from_files(cv2, tmp_path):
    bgr = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "c.png"), bgr)
    cv2.imwrite(str(tmp_path / "g.png"), bgr[:, :, 0])
    cv2.imwrite(str(tmp_path / "deep.png"), np.full((2, 2), 65535, np.uint16))
    cv2.imwrite(str(tmp_path / "a.png"), np.concatenate([bgr, bgr[:, :, :1]], axis=2))
    rgb = bgr[:, :, ::-1] / np.float32(255)
    np.testing.assert_allclose(caffe.io.load_image(str(tmp_path / "c.png")), rgb, rtol=1e-6)
    np.testing.assert_allclose(caffe.io.load_image(str(tmp_path / "a.png")), rgb, rtol=1e-6)
    grey = caffe.io.load_image(str(tmp_path / "c.png"), color=False)
    np.testing.assert_allclose(grey[:, :, 0], rgb[:, :, 0] * 0.2125 + rgb[:, :, 1] * 0.7154 + rgb[:, :, 2] * 0.0721,
                               rtol=1e-5)
    three = caffe.io.load_image(str(tmp_path / "g.png"))
    np.testing.assert_allclose(three, np.repeat(bgr[:, :, :1] / np.float32(255), 3, axis=2), rtol=1e-6)
    assert (caffe.io.load_image(str(tmp_path / "deep.png"), color=False) == np.ones((2, 2, 1))).all()
    (tmp_path / "bad.png").write_bytes(b"no image")
    for name, said in (("bad.png", "not an image"), ("none.png", "No such file")):
        with pytest.raises(ValueError, match=said):
            caffe.io.load_image(str(tmp_path / name))


def test_messages_and_arrays():
    array = np.random.default_rng(0).random((2, 3, 4))
    blob = caffe.io.array_to_blobproto(array, diff=-array)
    np.testing.assert_allclose(caffe.io.blobproto_to_array(blob), array, rtol=1e-6)
    np.testing.assert_allclose(caffe.io.blobproto_to_array(blob, return_diff=True), -array, rtol=1e-6)
    back = caffe.io.blobprotovector_str_to_arraylist(caffe.io.arraylist_to_blobprotovector_str([array, array[0]]))
    assert [a.shape for a in back] == [(2, 3, 4), (3, 4)]
    bytes_ = (array * 255).astype(np.uint8)
    for values in (array, bytes_):
        datum = caffe.io.array_to_datum(values, label=7)
        assert (datum.label, datum.channels, datum.height, datum.width) == (7, 2, 3, 4)
        np.testing.assert_allclose(caffe.io.datum_to_array(datum), values, rtol=1e-6)
    with pytest.raises(ValueError, match="channels, height, width"):
        caffe.io.array_to_datum(array[0])


def test_transformer():
    image = np.random.default_rng(0).random((4, 6, 3)).astype(np.float32)
    transformer = caffe.io.Transformer({"data": (1, 3, 4, 6)})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 1, 0))
    transformer.set_raw_scale("data", 255)
    transformer.set_mean("data", np.array([1.0, 2.0, 3.0]))
    transformer.set_input_scale("data", 0.5)
    kept = image.copy()
    made = transformer.preprocess("data", image)
    expected = (image.transpose(2, 0, 1)[::-1] * 255 - np.array([1, 2, 3])[:, None, None]) * 0.5
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(image, kept)
    np.testing.assert_allclose(transformer.deprocess("data", made[None]), image, rtol=1e-4, atol=1e-5)
    transformer.set_mean("data", np.full((3, 8, 12), 9.0))
    assert transformer.mean["data"].shape == (3, 4, 6)
    for call in (lambda: transformer.set_mean("data", np.zeros(2)), lambda: transformer.preprocess("dat", image),
                 lambda: transformer.set_transpose("data", (1, 0)), lambda: transformer.set_channel_swap("data", (0,))):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("step", ["mean", "pixels", "swap"])
def test_an_image_of_too_few_channels_is_refused(step):
    """Caffe's in-place arithmetic refuses it too."""
    transformer = caffe.io.Transformer({"data": (1, 3, 4, 6)})
    transformer.set_transpose("data", (2, 0, 1))
    if step == "swap":
        transformer.set_channel_swap("data", (2, 1, 0))
    else:
        transformer.set_mean("data", np.arange(3) if step == "mean" else np.zeros((3, 4, 6)))
    for grey in (np.zeros((4, 6, 1)), np.zeros((8, 8, 1))):
        with pytest.raises(ValueError, match=r"'data' has shape \(1, 3, 4, 6\); an image of shape .* too few channels"):
            transformer.preprocess("data", grey)
    assert transformer.preprocess("data", np.zeros((4, 6, 3))).shape == (3, 4, 6)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST).save(str(tmp_path / "w.caffemodel"))
    return str(tmp_path / "net.prototxt"), str(tmp_path / "w.caffemodel")


def test_classifier(model):
    images = np.random.default_rng(0).random((3, 9, 7, 3)).astype(np.float32)
    net = caffe.Classifier(*model, image_dims=(9, 7), raw_scale=255, channel_swap=(2, 1, 0), mean=np.ones(3))
    plain = caffe.Net(*model[:1], caffe.TEST, weights=model[1])

    def scores(crop):
        plain.blobs["data"].data[0] = crop[:, :, ::-1].transpose(2, 0, 1) * 255 - 1
        return plain.forward()["a"][0].copy()

    centre = net.predict(images, oversample=False)
    np.testing.assert_allclose(centre, [scores(image[2:7, 1:6]) for image in images], rtol=1e-4, atol=1e-5)
    ten = net.predict(images)
    expected = [np.mean([scores(crop) for crop in caffe.io.oversample([image], (5, 5))], axis=0) for image in images]
    np.testing.assert_allclose(ten, expected, rtol=1e-4, atol=1e-5)


def test_detector(cv2, model, tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "p.png"), picture)
    windows = [(0, 0, 5, 5), (3, 4, 15, 12)]
    found = caffe.Detector(*model).detect_windows([(str(tmp_path / "p.png"), windows)])
    assert [one["window"] for one in found] == windows
    first = picture[:5, :5, ::-1] / np.float32(255)
    plain = caffe.Net(*model[:1], caffe.TEST, weights=model[1])
    plain.blobs["data"].data[0] = first.transpose(2, 0, 1)
    np.testing.assert_allclose(found[0]["prediction"], plain.forward()["a"][0], rtol=1e-4, atol=1e-5)
    padded = caffe.Detector(*model, mean=np.array([0.1, 0.2, 0.3]), context_pad=1)
    crop = padded.crop(np.ones((20, 16, 3), np.float32), (0, 0, 8, 8))
    assert crop.shape == (5, 5, 3)
    np.testing.assert_allclose(crop[0, 0], [0.1, 0.2, 0.3], rtol=1e-6)  # outside the image: the mean
    np.testing.assert_allclose(crop[2:, 2:4], 1, rtol=1e-6)
    with pytest.raises(ValueError, match="selective_search_ijcv_with_python"):
        padded.detect_selective_search([str(tmp_path / "p.png")])


def test_coordinates():
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, 50, 50]})
    n.conv = L.Convolution(n.data, kernel_size=3, stride=2, pad=1, num_output=4)
    n.up = L.Deconvolution(n.conv, kernel_size=4, stride=2, pad=0, num_output=4)
    axis, scale, shift = caffe.coord_map.coord_map_from_to(n.up, n.data)
    assert (axis, float(scale[0]), float(shift[0])) == (1, 1, -1.5)
    with pytest.raises(AssertionError, match="must be whole"):
        caffe.coord_map.crop(n.up, n.data)
    n.even = L.Deconvolution(n.conv, kernel_size=3, stride=2, pad=0, num_output=4)
    cropped = caffe.coord_map.crop(n.even, n.data)
    assert cropped.fn.params["crop_param"] == {"axis": 2, "offset": [1]}
    n.ip = L.InnerProduct(n.data, num_output=3)
    with pytest.raises(RuntimeError, match="no coordinate map"):
        caffe.coord_map.coord_map_from_to(n.ip, n.data)


def test_import_caffe_means_us():
    code = ("import sys, scaffe; scaffe.install_as_caffe(); import caffe, caffe.draw, caffe.io\n"
            "from caffe.proto import caffe_pb2; from caffe import layers as L, params as P; from caffe.io import *\n"
            "import scaffe.proto.caffe_pb2 as ours\n"
            "assert caffe is scaffe and caffe_pb2 is ours and caffe.io.Transformer is Transformer\n"
            "assert (caffe.TRAIN, caffe.TEST, P.Pooling.AVE) == (0, 1, 1) and 'Python' in caffe.layer_type_list()\n"
            "caffe.set_mode_gpu(); caffe.set_device(0); caffe.log('said'); assert 'mpi4py' not in sys.modules\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("computing goes on on the CPU" in done.stderr) == bool(device.missing())
    assert done.stderr.strip().endswith("said")


def test_the_recipe_of_the_documents(cv2, tmp_path, monkeypatch, capfd):
    """The code block that classifies an image, as it stands in docs/python.md."""
    lines = (ROOT / "docs/python.md").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("import numpy"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy.prototxt").write_text(NET)
    caffe.Net("deploy.prototxt", caffe.TEST).save("net.caffemodel")
    cv2.imwrite("cat.jpg", np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8))
    exec("\n".join(lines[first:first + 5]), {})
    best = [int(word) for word in capfd.readouterr().out.strip("[]\n ").split()]
    assert len(set(best)) == 5
    assert set(best) <= set(range(7))
