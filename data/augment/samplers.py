"""Samples random parts of an image under a BatchSampler message's constraints (weiliu89/caffe, sampler.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.data.augment.objects import areas, shared_areas
from scaffe.errors import DataError

MOST_TRIALS = 1_000_000  # of one sampler for one image; they take a second
AT_ONCE = 64  # trials drawn together
KINDS = ("jaccard_overlap", "sample_coverage", "object_coverage")  # in the order in which they are checked


def check_sampler(message: Any) -> None:
    """Raise DataError if a BatchSampler message has a scale, an aspect ratio or a number of trials out of range."""
    if message.max_trials > MOST_TRIALS:
        raise DataError(f"a sampler wants at most {MOST_TRIALS} max_trials, got {message.max_trials}")
    s = message.sampler
    if not 0 < s.min_scale <= s.max_scale <= 1:
        raise DataError(f"a sampler wants 0 < min_scale <= max_scale <= 1, got {s.min_scale:g} and {s.max_scale:g}")
    if not 0 < s.min_aspect_ratio <= s.max_aspect_ratio < np.inf:
        raise DataError("a sampler wants 0 < min_aspect_ratio <= max_aspect_ratio, got "
                        f"{s.min_aspect_ratio:g} and {s.max_aspect_ratio:g}")


def draw_part(samplers: Sequence[Any], boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Draw one of the parts that the samplers find.

    Args:
        samplers: BatchSampler messages.
        boxes: float32 (n, 4), of the image's objects.
        rng: random numbers.

    Returns:
        float32 (4,), in fractions of the image; None if no sampler finds one.
    """
    found = np.concatenate([np.zeros((0, 4), np.float32), *(_parts(s, boxes, rng) for s in samplers
                                                            if s.use_original_image)])
    return found[rng.integers(len(found))] if len(found) else None


def jittered_part(jitter: float, keeps_shape: bool, rng: np.random.Generator) -> np.ndarray:
    """A random part, as MobileNet-YOLO's AnnotatedData draws it (eric612/MobileNet-YOLO, sampler.cpp).

    Args:
        jitter: most of the width and of the height that is left out; with probability 0.2 nothing, with 0.2 half of it.
        keeps_shape: as much is left out of the height as of the width.
        rng: random numbers.

    Returns:
        float32 (4,), in fractions of the image.
    """
    most = jitter * rng.choice([0.0, 0.5, 1.0], p=[0.2, 0.2, 0.6])
    width, height = 1 - most * rng.random(2)
    if keeps_shape:
        height = width
    left, top = rng.random(2) * (1 - width, 1 - height)
    return np.array([left, top, left + width, top + height], np.float32)


def _parts(message: Any, boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The parts (k, 4) that one sampler finds, at most ``max_sample``, in at most ``max_trials`` trials."""
    most = message.max_sample if message.HasField("max_sample") else message.max_trials
    found: list[np.ndarray] = []
    n_found = 0
    for done in range(0, message.max_trials, AT_ONCE):
        if n_found >= most:
            break
        tried = random_parts(message.sampler, rng.random((AT_ONCE, 4), np.float32))[:message.max_trials - done]
        found.append(tried[satisfied(message.sample_constraint, tried, boxes)])
        n_found += len(found[-1])
    return np.concatenate([np.zeros((0, 4), np.float32), *found])[:most]


def random_parts(sampler: Any, draws: np.ndarray) -> np.ndarray:
    """Parts of an image, of a Sampler message's scales and aspect ratios.

    Args:
        sampler: the message.
        draws: float32 (n, 4) in [0, 1): for scale, aspect ratio, and place across and down.

    Returns:
        float32 (n, 4).
    """
    scale = sampler.min_scale + draws[:, 0] * (sampler.max_scale - sampler.min_scale)
    ratio = sampler.min_aspect_ratio + draws[:, 1] * (sampler.max_aspect_ratio - sampler.min_aspect_ratio)
    root = np.sqrt(np.clip(ratio, scale**2, 1 / scale**2))
    extents = np.minimum(np.stack([scale * root, scale / root], axis=1), 1)
    corners = draws[:, 2:] * (1 - extents)
    return np.concatenate([corners, corners + extents], axis=1).astype(np.float32)


def satisfied(constraint: Any, parts: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Which parts (k, 4) satisfy a SampleConstraint message for at least one box (n, 4): bool (k,).

    As in weiliu89/caffe, only the first kind of constraint that is given counts: overlap of part and box, fraction of
    the part that the box covers, fraction of the box that the part covers. Without a constraint, all parts satisfy it.
    """
    given = [kind for kind in KINDS if _limits(constraint, kind) != (None, None)]
    if not given:
        return np.ones(len(parts), bool)
    shared, of_parts, of_boxes = shared_areas(parts, boxes), areas(parts)[:, None], areas(boxes)[None]
    whole = {KINDS[0]: of_parts + of_boxes - shared, KINDS[1]: of_parts, KINDS[2]: of_boxes}[given[0]]
    share = np.divide(shared, whole, out=np.zeros_like(shared), where=shared > 0)
    least, most = _limits(constraint, given[0])
    fits = np.ones_like(share, bool)
    if least is not None:
        fits &= share >= np.float32(least)
    if most is not None:
        fits &= share <= np.float32(most)
    found: np.ndarray = np.logical_or.reduce(fits, axis=1)
    return found


def _limits(constraint: Any, kind: str) -> tuple[float | None, float | None]:
    """The bounds of one kind of constraint; None if it is not given."""
    least, most = (getattr(constraint, f"{end}_{kind}") if constraint.HasField(f"{end}_{kind}") else None
                   for end in ("min", "max"))
    return least, most
