"""The transforms around a convolution's products as calls that native code makes; see ``in_native_parts``.

Each part of the rows of tiles has scratch memory of its own, and nothing is allocated: nobody could be told of a lack.
"""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.native import address_of, array_at
from scaffe.layers.kernels.cpu.calls import HEAD, Calls, in_native_parts
from scaffe.layers.kernels.cpu.native_parts import next_part
from scaffe.layers.kernels.cpu.onednn.primitive import place_of
from scaffe.layers.kernels.cpu.onednn.workspace import workspace
from scaffe.layers.kernels.cpu.parts import n_threads
from scaffe.layers.kernels.cpu.winograd.images import (
    bottom_scratch,
    top_scratch,
    transform_bottom_within,
    transform_top_within,
)

N_INTO, N_OUT_OF = 16, 18  # numbers of a call's table


def into(taps: int, x: np.ndarray, rows: tuple[int, int], tiles: tuple[int, int], pad: tuple[int, int],
         v: np.ndarray) -> Calls:
    """``transform_bottom`` of rows of tiles, from the first of v's tiles on.

    Args:
        taps, x, tiles, pad, v: see there.
        rows: the first, and how many.
    """
    first, n_rows = rows
    n_each = bottom_scratch(taps, x.shape[2], x.shape[3], tiles[1])
    scratch = _scratch(n_rows, n_each)
    numbers = [place_of(x), *x.shape, place_of(v), *v.shape[:2], place_of(scratch), n_each, taps, first, *tiles, *pad]
    return in_native_parts(_into_entry(), n_rows, n_rows, numbers, [x, v, scratch])


def out_of(taps: int, m: np.ndarray, bias: np.ndarray, added: np.ndarray | None, slope: float, rows: tuple[int, int],
           tiles: tuple[int, int], y: np.ndarray) -> Calls:
    """``transform_top`` of rows of tiles, from the first of m's tiles on. ``added``: None: nothing is."""
    first, n_rows = rows
    n_each = top_scratch(taps, y.shape[3])
    scratch, slopes, plus = _scratch(n_rows, n_each), np.array([slope], np.float32), y if added is None else added
    numbers = [place_of(y), *y.shape, place_of(m), *m.shape[:2], place_of(scratch), n_each, taps, first, *tiles,
               place_of(bias), place_of(plus), added is not None, place_of(slopes)]
    return in_native_parts(_out_of_entry(), n_rows, n_rows, numbers, [y, m, scratch, bias, plus, slopes])


def _scratch(n_rows: int, n_each: int) -> np.ndarray:
    memory: np.ndarray = workspace("scratch", 4 * n_each * max(min(n_threads(), n_rows), 1)).view(np.float32)
    return memory


@compiled
def _into_parts(place: int) -> None:
    """Do parts until none is left."""
    t = array_at(place + 8 * HEAD, N_INTO, np.int64)
    x = array_at(t[0], t[1] * t[2] * t[3] * t[4], np.float32).reshape((t[1], t[2], t[3], t[4]))
    v = array_at(t[5], t[6] * t[7] * t[4], np.float32).reshape((t[6], t[7], t[4]))
    n_each, columns = t[9], t[13]
    part, start, stop = next_part(place)
    while part >= 0:
        transform_bottom_within(t[10], x, t[11] + start, t[11] + stop, (t[12], columns), (t[14], t[15]), v,
                                start * columns, array_at(t[8] + 4 * part * n_each, n_each, np.float32))
        part, start, stop = next_part(place)


@compiled
def _out_of_parts(place: int) -> None:
    """Do parts until none is left."""
    t = array_at(place + 8 * HEAD, N_OUT_OF, np.int64)
    n_elems = t[1] * t[2] * t[3] * t[4]
    y = array_at(t[0], n_elems, np.float32).reshape((t[1], t[2], t[3], t[4]))
    added = array_at(t[15], n_elems, np.float32).reshape((t[1], t[2], t[3], t[4]))
    m = array_at(t[5], t[6] * t[7] * t[4], np.float32).reshape((t[6], t[7], t[4]))
    bias, slope = array_at(t[14], t[4], np.float32), array_at(t[17], 1, np.float32)[0]
    n_each, columns = t[9], t[13]
    part, start, stop = next_part(place)
    while part >= 0:
        transform_top_within(t[10], m, start * columns, bias, added, t[16] != 0, slope, t[11] + start, t[11] + stop,
                             (t[12], columns), y, array_at(t[8] + 4 * part * n_each, n_each, np.float32))
        part, start, stop = next_part(place)


@compiled
def _into_entry() -> int:
    """Where native code calls it."""
    place: int = address_of(_into_parts)
    return place


@compiled
def _out_of_entry() -> int:
    """Where native code calls it."""
    place: int = address_of(_out_of_parts)
    return place
