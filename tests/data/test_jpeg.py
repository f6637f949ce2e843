"""Plain JPEG files decoded by libjpeg-turbo directly have OpenCV's bits; all others go to OpenCV."""

import struct

import numpy as np
import pytest

from scaffe.data.records import decode as module
from scaffe.data.records.decode import GROUP_BYTES, Colour, decode, image_runs, read_image
from scaffe.data.records.jpeg_header import plain_size
from scaffe.errors import DataError

cv2 = pytest.importorskip("cv2")
simplejpeg = pytest.importorskip("simplejpeg")
SAMPLINGS = {"444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444, "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
             "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
             "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411}


def picture(rng, height, width, n_channels=3):
    rough = rng.integers(0, 256, (7, 9, n_channels), np.uint8)
    smooth = cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, n_channels)
    return np.clip(smooth.astype(int) + rng.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8)


def file_of(image, *options):
    return cv2.imencode(".jpg", image, list(options))[1].reshape(-1)


def is_plain(content):
    return plain_size(content) != (0, 0)


def forbid_opencv(monkeypatch):
    def used():
        raise AssertionError("OpenCV was called")

    monkeypatch.setattr(module, "opencv", used)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("seed", range(40))
def test_the_bits_are_opencvs(monkeypatch, sampling, seed):
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(1, 200, 2))
    content = file_of(picture(rng, height, width), cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(1, 101)),
                      cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling], cv2.IMWRITE_JPEG_OPTIMIZE, seed % 2,
                      cv2.IMWRITE_JPEG_RST_INTERVAL, int(rng.integers(0, 5)))
    expected = cv2.imdecode(content, cv2.IMREAD_COLOR)
    assert is_plain(content) == (sampling in ("444", "422", "420"))
    if is_plain(content):
        assert plain_size(content) == (height, width)
        forbid_opencv(monkeypatch)
    for colour in (Colour.BGR, Colour.AS_STORED):
        np.testing.assert_array_equal(decode(content, colour), expected)


def test_it_decodes_into_given_memory():
    content = file_of(picture(np.random.default_rng(1), 30, 50))
    out = np.zeros(30 * 50 * 3 + 5, np.uint8)
    image = decode(content, Colour.BGR, out)
    np.testing.assert_array_equal(out[:-5].reshape(30, 50, 3), cv2.imdecode(content, cv2.IMREAD_COLOR))
    assert image.base is not None and np.shares_memory(image, out)
    assert not out[-5:].any()
    assert not np.shares_memory(decode(content, Colour.BGR, out[:100]), out)


def exif(orientation, order="<", tag=0x0112, n_before=2):
    """An APP1 marker with one directory, in which the orientation comes after some other tags."""
    entries = b"".join(struct.pack(order + "HHII", 0x0100 + i, 4, 1, 7) for i in range(n_before))
    entries += struct.pack(order + "HHIHH", tag, 3, 1, orientation, 0)
    body = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, n_before + 1) + entries + b"\0" * 4
    body = b"Exif\0\0" + body
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotated_by_exif_goes_to_opencv(orientation, order):
    rng = np.random.default_rng(orientation)
    plain = file_of(picture(rng, 20, 31)).tobytes()
    content = np.frombuffer(plain[:2] + exif(orientation, order) + plain[2:], np.uint8)
    assert is_plain(content) == (orientation == 1)
    for colour in Colour:
        expected = cv2.imdecode(content, int(colour))
        np.testing.assert_array_equal(decode(content, colour), expected.reshape(*expected.shape[:2], -1))


def test_exif_without_orientation_is_plain_and_a_broken_one_is_opencvs():
    plain = file_of(picture(np.random.default_rng(0), 20, 31)).tobytes()
    marker = exif(7, tag=0x0113)
    assert is_plain(np.frombuffer(plain[:2] + marker + plain[2:], np.uint8))
    many_entries = marker.replace(b"\x03\x00\x00\x01", b"\xff\x00\x00\x01", 1)
    far_directory = marker[:4] + marker[4:].replace(b"\x08\0\0\0", b"\xff\xff\0\0", 1)
    for bad in (many_entries, far_directory):
        assert not is_plain(np.frombuffer(plain[:2] + bad + plain[2:], np.uint8))


OTHERS = {
    "grey": lambda image: file_of(image[:, :, :1]),
    "progressive": lambda image: file_of(image, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "PNG": lambda image: cv2.imencode(".png", image)[1].reshape(-1),
    "PNG of 16 bits": lambda image: cv2.imencode(".png", image.astype(np.uint16) * 200)[1].reshape(-1),
    "BMP": lambda image: cv2.imencode(".bmp", image)[1].reshape(-1),
    "nothing": lambda image: np.zeros(0, np.uint8),
    "two bytes": lambda image: np.array([0xFF, 0xD8], np.uint8),
    "noise": lambda image: np.random.default_rng(0).integers(0, 256, 500, np.uint8),
}


@pytest.mark.parametrize("colour", Colour)
@pytest.mark.parametrize("kind", OTHERS)
def test_other_files_are_opencvs(kind, colour):
    content = OTHERS[kind](picture(np.random.default_rng(3), 33, 47))
    assert not is_plain(content)
    try:
        expected = cv2.imdecode(content, int(colour))
    except cv2.error:
        expected = None
    found = decode(content, colour)
    if expected is None or expected.dtype != np.uint8:
        assert found is None
    else:
        np.testing.assert_array_equal(found, expected.reshape(*expected.shape[:2], -1))


def test_adobes_and_unknown_components_go_to_opencv():
    plain = file_of(picture(np.random.default_rng(0), 20, 31)).tobytes()
    adobe = b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0"
    assert is_plain(np.frombuffer(plain[:2] + adobe + b"\x01" + plain[2:], np.uint8))
    assert not is_plain(np.frombuffer(plain[:2] + adobe + b"\x00" + plain[2:], np.uint8))
    frame = plain.index(b"\xff\xc0")
    assert not is_plain(np.frombuffer(plain[:frame + 10] + b"R" + plain[frame + 11:], np.uint8))


@pytest.mark.parametrize("seed", range(30))
def test_cut_short_or_damaged_is_as_opencv_has_it(seed):
    rng = np.random.default_rng(seed)
    content = file_of(picture(rng, 60, 80)).copy()
    if seed % 2:
        content = content[:int(rng.integers(2, content.size))]
    else:
        content[rng.integers(0, content.size, 5)] = rng.integers(0, 256, 5)
    try:
        expected = cv2.imdecode(content, cv2.IMREAD_COLOR)
    except cv2.error:
        expected = None
    found = decode(content, Colour.BGR)
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_array_equal(found, expected)


def test_without_simplejpeg_all_is_opencvs(monkeypatch):
    monkeypatch.setattr(module, "_turbo", lambda: None)
    content = file_of(picture(np.random.default_rng(5), 33, 47))
    np.testing.assert_array_equal(decode(content, Colour.BGR), cv2.imdecode(content, cv2.IMREAD_COLOR))


@pytest.mark.parametrize("seed", range(60))
def test_runs_have_all_images_in_order(seed):
    """Images of changing sizes, some larger than the memory of a group, some decoded elsewhere; some fail."""
    rng = np.random.default_rng(seed)
    sides = rng.choice([3, 200, 500, 900], 4) if seed % 2 else np.array([300, 300, 300, 301])
    images = [rng.integers(0, 256, (side, side, 3), np.uint8) for side in rng.choice(sides, 25)]
    fails_at = int(rng.integers(25)) if seed % 3 == 0 else 25
    in_place = rng.random(25) < 0.7

    def make(i, out):
        if i == fails_at:
            raise DataError("bad")
        if in_place[i] and out.size >= images[i].size:
            place = out[:images[i].size].reshape(images[i].shape)
            place[...] = images[i]
            return place
        return images[i]

    found = []
    try:
        for run in image_runs(make, np.arange(25)):
            channels, height, width = run.shape
            assert run.interleaved and (len(run.starts) == 1 or run.pixels.size <= GROUP_BYTES)
            for start, label in zip(run.starts, run.labels, strict=True):
                image = run.pixels[start:start + channels * height * width].reshape(height, width, channels)
                found.append((label, image.copy()))
    except DataError:
        assert len(found) == fails_at
    else:
        assert fails_at == 25 == len(found)
    for i, (label, image) in enumerate(found):
        assert label == i
        np.testing.assert_array_equal(image, images[i])


@pytest.mark.parametrize("height, width, divisor", [(20, 30, 8), (40, 60, 4), (41, 60, 2), (80, 101, 2), (100, 101, 1),
                                                    (160, 240, 1)])
@pytest.mark.parametrize("colour", [Colour.GREY, Colour.BGR])
def test_scaled_decoding_is_libjpegs_at_the_largest_part_that_suffices(tmp_path, height, width, divisor, colour):
    """Whole: 160 x 240; a divisor of 1: as without the option."""
    path = tmp_path / "a.jpg"
    path.write_bytes(file_of(picture(np.random.default_rng(2), 160, 240)).tobytes())
    name = "GRAYSCALE" if colour == Colour.GREY else "COLOR"
    part = cv2.imread(str(path), int(colour) if divisor == 1 else getattr(cv2, f"IMREAD_REDUCED_{name}_{divisor}"))
    assert part.shape[:2] == (160 // divisor, 240 // divisor)
    expected = cv2.resize(part, (width, height)).reshape(height, width, -1)
    np.testing.assert_array_equal(read_image(str(path), colour, height, width, scaled=True), expected)


def test_scaled_decoding_leaves_other_files_alone(tmp_path):
    image = picture(np.random.default_rng(2), 160, 240)
    cv2.imwrite(str(tmp_path / "a.png"), image)
    np.testing.assert_array_equal(read_image(str(tmp_path / "a.png"), Colour.BGR, 20, 30, scaled=True),
                                  cv2.resize(image, (30, 20)))
    cv2.imwrite(str(tmp_path / "b.jpg"), image)
    whole = read_image(str(tmp_path / "b.jpg"), Colour.BGR, scaled=True)  # nothing is to be resized
    np.testing.assert_array_equal(whole, cv2.imread(str(tmp_path / "b.jpg")))


def test_the_flag_of_a_data_layer_and_of_the_converter(tmp_path):
    from scaffe.cli.main import main
    from scaffe.data.sources.image_list import ImageListSource
    from scaffe.data.sources.lmdb import LmdbSource

    cv2.imwrite(str(tmp_path / "b.jpg"), picture(np.random.default_rng(2), 160, 240))
    (tmp_path / "list").write_text("b.jpg 3\n")
    expected = cv2.resize(cv2.imread(str(tmp_path / "b.jpg"), cv2.IMREAD_REDUCED_COLOR_8), (30, 20))
    (run,) = ImageListSource(tmp_path / "list", f"{tmp_path}/", 20, 30, scaled=True).read(np.array([0]))
    np.testing.assert_array_equal(run.pixels.reshape(20, 30, 3), expected)
    assert main(["convert_imageset", "-resize_height=20", "-resize_width=30", "-scaled_decode", f"{tmp_path}/",
                 str(tmp_path / "list"), str(tmp_path / "db")]) == 0
    (run,) = LmdbSource(tmp_path / "db").read(np.array([0]))
    start = run.starts[0]
    np.testing.assert_array_equal(run.pixels[start:start + 1800].reshape(3, 20, 30), np.moveaxis(expected, -1, 0))
