"""Line charts: where points, marks and texts go, on logarithmic and linear axes."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from scaffe.line_chart import (
    Axis,
    Chart,
    Line,
    Linear,
    Logarithmic,
    Page,
    bytes_text,
    time_text,
)

SVG = "{http://www.w3.org/2000/svg}"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 80, 150, 40, 60
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


def drawn(chart: Chart) -> tuple[list[tuple[float, float]], list[str]]:
    """The first curve's points on the page, and all texts."""
    document = ElementTree.fromstring(chart.svg())
    line = document.find(f".//{SVG}polyline")
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    return points, [text.text or "" for text in document.iter(f"{SVG}text")]


def test_powers_are_evenly_spaced():
    """1K to 16K is four doublings, 10 us to 10 ms three powers of ten."""
    points, texts = drawn(Chart("a < b", [Line("x & y", [(1024, 10), (2048, 100), (16384, 10_000)])]))
    third = pytest.approx(HEIGHT - BOTTOM - INNER_HEIGHT / 3)
    assert points == [(LEFT, HEIGHT - BOTTOM), (LEFT + INNER_WIDTH / 4, third),
                      (LEFT + INNER_WIDTH, TOP)]
    assert {"a < b", "x & y", "1K", "4K", "16K", "10 us", "100 us", "1 ms", "10 ms", "message size"} == set(texts)


def test_accuracy_over_seconds():
    """0 to 200 seconds and 0.2 to 1: points lie in proportion."""
    chart = Chart("", [Line("sgd", [(0, 0.2), (50, 0.7), (200, 1.0)])], Axis(label="seconds"), Axis(label="accuracy"))
    points, texts = drawn(chart)
    middle = pytest.approx(HEIGHT - BOTTOM - INNER_HEIGHT * 5 / 8)
    assert points == [(LEFT, HEIGHT - BOTTOM), (LEFT + INNER_WIDTH / 4, middle),
                      (LEFT + INNER_WIDTH, TOP)]
    assert {"0", "50", "100", "150", "200", "0.2", "0.4", "0.6", "0.8", "1"} <= set(texts)
    assert {"seconds", "accuracy"} <= set(texts)


@pytest.mark.parametrize(("low", "high", "ends", "ticks"), [
    (0, 10, (0, 10), [0, 2, 4, 6, 8, 10]), (3, 97, (0, 100), [0, 20, 40, 60, 80, 100]),
    (-1.5, 1, (-1.5, 1), [-1.5, -1, -0.5, 0, 0.5, 1]), (0.71, 0.93, (0.7, 0.95), [0.7, 0.75, 0.8, 0.85, 0.9, 0.95]),
    (1e6, 6e6, (1e6, 6e6), [1e6, 2e6, 3e6, 4e6, 5e6, 6e6]),
    (0, 3e-4, (0, 3e-4), [0, 5e-5, 1e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4]),
    (5, 5, (5, 6), [5, 5.2, 5.4, 5.6, 5.8, 6]),
])
def test_linear_axes_end_and_mark_at_round_numbers(low, high, ends, ticks):
    scale = Linear()
    assert scale.ends(low, high) == pytest.approx(ends)
    assert scale.ticks(*scale.ends(low, high)) == pytest.approx(ticks)


@pytest.mark.parametrize(("base", "step", "low", "high", "ends", "ticks"), [
    (2, 1, 3, 17, (2, 32), [2, 4, 8, 16, 32]), (2, 2, 1 << 10, 1 << 14, (1 << 10, 1 << 14), [1024, 4096, 16384]),
    (10, 1, 0.02, 3, (0.01, 10), [0.01, 0.1, 1, 10]), (2, 1, 8, 8, (8, 16), [8, 16]),
    (2, 10, 1 << 29, 1 << 29, (1 << 29, 1 << 30), [1 << 29]),
])
def test_logarithmic_axes_end_at_powers(base, step, low, high, ends, ticks):
    scale = Logarithmic(base, step)
    assert scale.ends(low, high) == ends
    assert scale.ticks(*ends) == ticks


def test_scales_may_be_mixed():
    points, texts = drawn(Chart("", [Line("l", [(1, 0), (10, 5), (100, 10)])], Axis(scale=Logarithmic()), Axis()))
    assert points == [(LEFT + n * INNER_WIDTH / 2, HEIGHT - BOTTOM - n * INNER_HEIGHT / 2) for n in range(3)]
    assert {"1", "10", "100", "0", "4", "8"} <= set(texts)


def test_units():
    assert [bytes_text(n) for n in (0, 1000, 1024, 1 << 28, 1 << 30)] == ["0", "1000", "1K", "256M", "1G"]
    assert [time_text(t) for t in (10, 1e3, 1e5, 2e6)] == ["10 us", "1 ms", "100 ms", "2 s"]


def test_a_page_of_another_size_without_a_legend():
    page = Page(width=300, height=200, left=50, right=10, top=30, bottom=40, has_legend=False)
    points, texts = drawn(Chart("", [Line("hidden", [(0, 0), (10, 10)])], Axis(), Axis(), page))
    assert points == [(50, 160), (290, 30)]
    assert "hidden" not in texts


def test_lines_beyond_the_colours_are_dashed():
    """Ten lines of eight colours: the last two are told apart from the first two."""
    chart = Chart("", [Line(str(n), [(0, n), (1, n)]) for n in range(10)], Axis(), Axis())
    document = ElementTree.fromstring(chart.svg())
    looks = [(line.attrib["stroke"], line.get("stroke-dasharray", "")) for line in document.iter(f"{SVG}polyline")]
    assert len(set(looks)) == 10
    assert [bool(dashes) for _, dashes in looks] == [False] * 8 + [True] * 2
