"""Writes SVG: elements with short numbers, texts whose length is known, a whole document, and that as PNG."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from scaffe.errors import ExpectedError
from scaffe.markup import escaped

FONT, FONT_SIZE = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif", 12.0
NARROW, WIDE = set("fijlrtI.,:;'|!()[]/ -"), set("mwMW@%")
NARROW_EM, LOWER_EM, UPPER_EM, WIDE_EM = 0.41, 0.64, 0.72, 1.0  # no less than DejaVu Sans takes, the widest of FONT
MOST_PIXELS = 1 << 25  # of a PNG
SHARP_SIDE = 6000  # a smaller picture becomes a PNG of twice its size

Number = float | str


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """The pixels that a text takes at most in any of the fonts of a document; scripts wider than Latin take more."""
    return size * sum(NARROW_EM if c in NARROW else WIDE_EM if c in WIDE else UPPER_EM if c.isupper() else LOWER_EM
                      for c in text)


def element(name: str, content: str | None = None, /, **attributes: Number) -> str:
    """An element.

    Args:
        name: the tag.
        content: what stands inside, escaped already; None: nothing does.
        attributes: numbers, rounded to hundredths, or texts; underscores become hyphens, and one at the end is dropped.
    """
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{given}/>" if content is None else f"<{name}{given}>{content}</{name}>"


def _value(value: Number) -> str:
    return escaped(value, len(value)) if isinstance(value, str) else f"{round(float(value), 2):.10g}"


def text(x: float, y: float, content: str, **attributes: Number) -> str:
    """A text whose baseline begins at (x, y), or has its middle or its end there (``text_anchor``)."""
    return element("text", escaped(content), x=x, y=y, **attributes)


def on_ground(x: float, y: float, content: str, **attributes: Number) -> str:
    """A text on a white ground, so that no line behind strikes it through; of the class ``ground``."""
    return text(x, y, content, class_="ground", stroke="white", stroke_width=4, stroke_linejoin="round",
                paint_order="stroke", **attributes)


def rectangle(x: float, y: float, width: float, height: float, tip: str = "", **attributes: Number) -> str:
    """A rectangle; ``tip`` is what a viewer shows beside the pointer."""
    title = element("title", escaped(tip)) if tip else None
    return element("rect", title, x=x, y=y, width=width, height=height, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: Number) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def polyline(points: Iterable[tuple[float, float]], **attributes: Number) -> str:
    """Lines from point to point, not filled."""
    return element("polyline", points=" ".join(f"{_value(x)},{_value(y)}" for x, y in points), fill="none",
                   **attributes)


def document(width: float, height: float, body: Iterable[str]) -> str:
    """A whole picture on white paper, a rectangle of the class ``paper``."""
    size = f"{width:.0f}", f"{height:.0f}"
    paper = element("rect", class_="paper", width="100%", height="100%", fill="white")
    return element("svg", "\n" + "\n".join([paper, *body]) + "\n", xmlns="http://www.w3.org/2000/svg", width=size[0],
                   height=size[1], viewBox=f"0 0 {size[0]} {size[1]}", font_family=FONT, font_size=FONT_SIZE) + "\n"


def png(svg: str, width: float, height: float, error: Callable[[str], ExpectedError]) -> bytes:
    """A document as a PNG file's content.

    Args:
        svg: the document.
        width, height: its size.
        error: makes the exception to raise, from its one-line message: resvg-py is not installed, there is no font, or
            the picture is too large; SVG has none of these limits.
    """
    if width * height > MOST_PIXELS:
        raise error(f"the picture is {width:.0f} x {height:.0f} pixels; draw an .svg")
    try:
        if not _has_fonts():
            raise error("PNG needs a font, and this machine has none (Debian: fonts-dejavu-core); draw an .svg")
        zoom = 2 if 2 * max(width, height) <= SHARP_SIDE else 1
        return _drawn(svg, zoom)
    except ImportError:
        raise error("PNG needs the package resvg-py: pip install 'scaffe[png]'; or draw an .svg") from None


def _drawn(svg: str, zoom: int) -> bytes:
    resvg: Any = importlib.import_module("resvg_py")
    return bytes(resvg.svg_to_bytes(svg_string=svg, zoom=zoom, background="white"))


@cache
def _has_fonts() -> bool:
    """Whether a letter leaves a mark."""
    return _drawn(document(20, 20, [text(2, 15, "M")]), 1) != _drawn(document(20, 20, []), 1)
