"""What all tests of this folder may ask for."""

import pytest

from scaffe.data.feeds import feed
from tests.data.databases import datum, unlike_images, write


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Readers take two samples at a time at the most, so that small batches are made in pieces, too."""
    monkeypatch.setattr(feed, "MOST_ROWS", 2)
    monkeypatch.setattr(feed, "PIECE_BYTES", 0)


@pytest.fixture(scope="session")
def images():
    """37 images of 1 x 4 x 5, a prime number of them."""
    return unlike_images(37)


@pytest.fixture(scope="session")
def database(tmp_path_factory, images):
    """An LMDB of ``images``; image i has the label 3 i."""
    folder = tmp_path_factory.mktemp("data") / "images_lmdb"
    return write(folder, [(b"%08d" % i, datum(image, 3 * i)) for i, image in enumerate(images)])
