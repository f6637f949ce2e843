"""SVG's elements: what stands in them, and what a renderer makes of a document."""

from xml.etree import ElementTree

import numpy as np
import pytest

from scaffe import svg
from scaffe.errors import UserError


def test_attributes_and_texts_are_escaped_and_numbers_short():
    made = svg.document(10, 20.4, [svg.text(1 / 3, 2, "a < b & \x07", font_size=11.0, text_anchor="end"),
                                   svg.rectangle(0, 0, 1e-9, 2.5, tip='"x"', class_="bar"), svg.line(0, 1, 2, 3)])
    root = ElementTree.fromstring(made)
    paper, text, rectangle, line = root
    assert (root.get("width"), root.get("viewBox"), paper.get("class")) == ("10", "0 0 10 20", "paper")
    assert text.text == r"a < b & \x07"
    assert text.attrib == {"x": "0.33", "y": "2", "font-size": "11", "text-anchor": "end"}
    assert (rectangle.get("width"), rectangle.get("class"), rectangle[0].text) == ("0", "bar", '"x"')
    assert line.attrib == {"x1": "0", "y1": "1", "x2": "2", "y2": "3"}


def test_long_paths_stay_whole():
    points = [(float(i), float(i % 7)) for i in range(1000)]
    line = ElementTree.fromstring(svg.polyline(points))
    assert [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()] == points


@pytest.mark.parametrize("said", ["conv1", "Convolution 384", "kernel 3 stride 2 pad 1", "inception_3a/5x5_reduce",
                                  "WWW @ mmm"])
def test_texts_are_no_wider_than_their_width(said):
    """Measured in what a renderer draws, in whatever font this machine has."""
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("resvg_py")
    drawn = svg.png(svg.document(600, 40, [svg.text(10, 25, said)]), 600, 40, UserError)
    dark = np.argwhere(cv2.imdecode(np.frombuffer(drawn, np.uint8), cv2.IMREAD_GRAYSCALE) < 128)
    assert 0.6 < (dark[:, 1].max() / 2 - 10) / svg.text_width(said) < 1.0


def test_what_cannot_be_a_png(monkeypatch):
    with pytest.raises(UserError, match="the picture is 100000 x 2000 pixels; draw an .svg"):
        svg.png("", 100_000, 2000, UserError)
    monkeypatch.setattr(svg, "_has_fonts", lambda: False)
    with pytest.raises(UserError, match="this machine has none"):
        svg.png("", 10, 10, UserError)

    def missing(*_):
        raise ImportError

    monkeypatch.setattr(svg, "_has_fonts", missing)
    with pytest.raises(UserError, match=r"pip install 'scaffe\[png\]'"):
        svg.png("", 10, 10, UserError)
