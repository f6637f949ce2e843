"""A flat buffer in pieces: an interval within one is an array, and there are no others."""

import numpy as np
import pytest

from scaffe.nets.flat_params import Pieces, divided


def make(moved, allocated):
    def allocate(n_elems):
        allocated.append(n_elems)
        return np.zeros(n_elems, np.float32)
    return Pieces(np.arange(100, dtype=np.float32), moved, allocate)


@pytest.mark.parametrize(("moved", "places"), [
    ([], [(0, 100)]), ([(0, 100)], [(0, 100)]), ([(0, 32)], [(0, 32), (32, 100)]),
    ([(16, 48), (48, 64), (96, 100)], [(0, 16), (16, 48), (48, 64), (64, 96), (96, 100)])])
def test_what_does_not_move_lies_in_new_memory_of_just_its_length(moved, places):
    moved, allocated = [slice(*place) for place in moved], []
    pieces = make(moved, allocated)
    assert [(place.start, place.stop) for place in pieces.places] == places
    assert [(place.start, place.stop) for place in divided(100, moved)] == places
    assert allocated == [100 - sum(place.stop - place.start for place in moved)]
    for start, stop in places:
        if slice(start, stop) in moved:
            with pytest.raises(IndexError, match=f"elements {start} to {stop} do not lie in one piece"):
                pieces[start:stop]
        else:
            assert pieces[start + 1:stop].tolist() == list(range(start + 1, stop))
            assert pieces[start + 1:stop].base is pieces[start:stop].base


def test_what_moves_is_where_it_was_put_last():
    pieces = make([slice(16, 48)], [])
    for factor in (2, 3):
        memory = np.arange(32, dtype=np.float32) * factor
        pieces.put(slice(16, 48), memory)
        pieces[20:24][:] = -1
        assert memory[3:9].tolist() == [3 * factor, -1, -1, -1, -1, 8 * factor]
    assert pieces.whole(np.copy)[14:22].tolist() == [14, 15, 0, 3, 6, 9, -1, -1]
    with pytest.raises(IndexError, match="elements 40 to 50 do not lie in one piece"):
        pieces[40:50]
    with pytest.raises(ValueError, match="slice"):
        pieces.put(slice(16, 40), memory)
