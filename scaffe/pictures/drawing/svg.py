"""A picture as SVG."""

from __future__ import annotations

from scaffe.markup import escaped
from scaffe.pictures.drawing.picture import CHAR_WIDTH, LINE_HEIGHT, Picture

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}"
 font-family="monospace" font-size="12" text-anchor="middle">
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>
<rect class="paper" width="100%" height="100%" fill="white"/>"""


def to_svg(picture: Picture) -> bytes:
    """The SVG file's content."""
    parts = [HEAD.format(picture.width, picture.height)]
    for path, label in picture.arrows:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        parts.append(f'<polyline class="arrow" points="{points}" fill="none" stroke="#555" marker-end="url(#head)"/>')
        (x0, y0), (x1, y1) = path[-2:]
        style = f' class="label" fill="#555" font-size="{CHAR_WIDTH + 2:.0f}"'
        parts.append(_text((x0 + x1) / 2, (y0 + y1) / 2 + 4, label, style))
    for box, (x, y), (width, height) in picture.boxes:
        parts.append(f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" '
                     f'height="{height:.1f}" rx="4" fill="{box.colour}" stroke="#333"/>')
        top = y - (len(box.lines) - 1) * LINE_HEIGHT / 2 + 4
        parts += [_text(x, top + i * LINE_HEIGHT, line) for i, line in enumerate(box.lines)]
    return "\n".join([*parts, "</svg>", ""]).encode()


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escaped(text)}</text>' if text else ""
