"""Draws images of circles, squares and triangles, with PASCAL VOC's XML around them.

    python draw.py FOLDER N_IMAGES [SEED]

Writes FOLDER/images, FOLDER/boxes and FOLDER/list.txt, which convert_annoset reads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np

SIDE = 96
KINDS = ("circle", "square", "triangle")
MOST = 3  # shapes in an image
FREE = 2  # pixels between two shapes at least
Box = tuple[int, int, int, int]


def draw(folder: Path, n_images: int, seed: int = 0) -> None:
    """Draw a data set into a folder, which is made."""
    rng = np.random.default_rng(seed)
    for part in ("images", "boxes"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    lines = []
    for i in range(n_images):
        image, found = scene(rng)
        cv2.imwrite(str(folder / f"images/{i:05d}.png"), image)
        (folder / f"boxes/{i:05d}.xml").write_text(annotation(found))
        lines.append(f"images/{i:05d}.png boxes/{i:05d}.xml\n")
    (folder / "list.txt").write_text("".join(lines))


def scene(rng: np.random.Generator) -> tuple[np.ndarray, list[tuple[str, Box]]]:
    """One image, uint8 (SIDE, SIDE, 3), and its shapes: kind and xmin, ymin, xmax, ymax in pixels."""
    noise = rng.normal(0, 8, (SIDE, SIDE, 3)) + rng.uniform(30, 110, 3)
    image = np.clip(noise, 0, 255).astype(np.uint8)
    found: list[tuple[str, Box]] = []
    for _ in range(rng.integers(1, MOST + 1)):
        side = int(rng.integers(16, 40))
        x, y = (int(n) for n in rng.integers(1, SIDE - side - 1, 2))
        box = x, y, x + side, y + side
        if all(_apart(box, other) for _, other in found):
            kind = KINDS[rng.integers(len(KINDS))]
            _paint(image, kind, box, rng.uniform(150, 255, 3))
            found.append((kind, box))
    return image, found


def annotation(found: list[tuple[str, Box]]) -> str:
    """PASCAL VOC's XML."""
    things = "".join(
        f"<object><name>{kind}</name><difficult>0</difficult><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin>"
        f"<xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>" for kind, (x0, y0, x1, y1) in found)
    return f"<annotation><size><width>{SIDE}</width><height>{SIDE}</height></size>{things}</annotation>\n"


def _apart(a: Box, b: Box) -> bool:
    return a[0] > b[2] + FREE or b[0] > a[2] + FREE or a[1] > b[3] + FREE or b[1] > a[3] + FREE


def _paint(image: np.ndarray, kind: str, box: Box, colour: np.ndarray) -> None:
    x0, y0, x1, y1 = box
    values = colour.tolist()
    if kind == "circle":
        cv2.circle(image, ((x0 + x1) // 2, (y0 + y1) // 2), (x1 - x0) // 2, values, -1)
    elif kind == "square":
        cv2.rectangle(image, (x0, y0), (x1 - 1, y1 - 1), values, -1)
    else:
        cv2.fillConvexPoly(image, np.array([(x0, y1 - 1), (x1 - 1, y1 - 1), ((x0 + x1) // 2, y0)]), values)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
