"""JPEG files decoded by a card and by the host: the same images at the same places, but for how each rounds."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scaffe.data.records.decode import Colour, decode
from scaffe.errors import LayerError
from scaffe.layers.kernels import cuda, device

pytestmark = pytest.mark.skipif(not os.environ.get("SCAFFE_TEST_GPU") or bool(device.missing()), reason="needs a GPU")
cv2 = pytest.importorskip("cv2")
CROP, LARGEST, MEAN = 32, 32, 2.0  # of differences, in steps of a byte; to be made less when a card has told
SAMPLINGS = (0x111111, 0x211111, 0x221111)  # OpenCV's numbers of 4:4:4, 4:2:2 and 4:2:0


def file_of(i: int) -> np.ndarray:
    rng = np.random.default_rng(i)
    height, width = rng.integers(CROP, 300, 2).tolist()
    image = cv2.resize(rng.integers(0, 256, (9, 9, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[i % 3]])[1].reshape(-1)


def test_parts_of_images_differ_in_the_last_places_only() -> None:
    try:
        decoder = cuda.image_decoder()
    except LayerError as error:
        pytest.skip(str(error))
    files = [file_of(i) for i in range(64)]
    images = [decode(file, Colour.BGR) for file in files]
    sizes = np.array([image.shape[:2] for image in images if image is not None])
    places = np.random.default_rng(0).integers(0, sizes - CROP + 1)
    out = decoder.empty(64 * CROP * CROP * 3).reshape(64, CROP, CROP, 3)

    def work(first: int) -> np.ndarray:
        mine = np.arange(first, 64, 4)
        return decoder.decode([files[i] for i in mine], sizes[mine], places[mine], mine, out)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(work, range(4)))
    assert all(part.all() for part in done), decoder.first_error
    found = out.get().astype(int)
    for image, (y, x), mine in zip(images, places, found, strict=True):
        assert image is not None
        away = np.abs(mine - image[y:y + CROP, x:x + CROP])
        assert away.max() <= LARGEST and away.mean() <= MEAN
