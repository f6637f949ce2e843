"""A laid-out trace as SVG; a viewer shows each span's name and length under the pointer."""

from __future__ import annotations

from scaffe.markup import escaped
from scaffe.pictures.timeline_picture import Bar, Picture


def to_svg(picture: Picture) -> bytes:
    """The SVG file's content."""
    labels = [f'<text x="{x:g}" y="{y:g}"{" text-anchor=" + chr(34) + "end" + chr(34) if ends else ""}>'
              f"{escaped(text)}</text>" for x, y, text, ends in picture.labels]
    body = "\n".join([*labels, *map(_rectangle, picture.bars)])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{picture.width}" height="{picture.height}" '
            f'viewBox="0 0 {picture.width} {picture.height}" font-family="sans-serif" font-size="12">\n'
            f'<rect class="paper" width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n').encode()


def _rectangle(bar: Bar) -> str:
    return (f'<rect x="{bar.x:.2f}" y="{bar.y:g}" width="{bar.width:.2f}" height="{bar.height:g}" '
            f'fill="{bar.colour}"><title>{escaped(bar.title)}</title></rect>')
