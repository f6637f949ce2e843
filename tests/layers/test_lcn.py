"""LCN against a loop over pixels, and what it refuses. Its gradients are checked with those of all layers."""

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig
from tests.reference.local import local_contrast

IMAGE = np.random.default_rng(4).standard_normal((2, 3, 6, 5)).astype(np.float32)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize(("local_size", "sigma", "least"), [(3, 1, 0.01), (5, 2.5, 0.9), (9, 2, 0.01), (1, 1, 0.3)])
def test_every_pixel_beside_its_neighbourhood(local_size, sigma, least, across):
    options = f"local_size: {local_size} sigma: {sigma} least: {least} across_channels: {str(across).lower()}"
    (found,) = Rig(f'type: "LCN" lcn_param {{ {options} }}', [IMAGE]).forward()
    np.testing.assert_allclose(found, local_contrast(IMAGE, local_size, sigma, least, across), rtol=1e-4, atol=1e-5)


def test_an_even_image_becomes_zeros():
    (found,) = Rig('type: "LCN"', [np.full((1, 2, 4, 4), 7.5)]).forward()
    np.testing.assert_allclose(found, 0, atol=1e-3)


@pytest.mark.parametrize(("options", "image", "words"), [
    ("local_size: 4", IMAGE, "odd"), ("sigma: 0", IMAGE, "above 0"), ("least: -1", IMAGE, "above 0"),
    ("", IMAGE[0, 0], "four axes")])
def test_what_does_not_fit_is_one_line(options, image, words):
    with pytest.raises(LayerError, match=words):
        Rig(f'type: "LCN" lcn_param {{ {options} }}', [image])
