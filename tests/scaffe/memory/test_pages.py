"""Pages pass from array to array: none is lost, none is in two places, none is made anew."""

import random
import resource

import numpy as np
import pytest

from scaffe import mapped_memory
from scaffe.mapped_memory import HUGE_BYTES, PAGE_BYTES, address, rounded
from scaffe.memory.backing import pages as pages_module
from scaffe.memory.backing.pages import WORTH_BYTES, FreePieces, Pages

LENGTHS = [3 * WORTH_BYTES, 5 * WORTH_BYTES, 8 * WORTH_BYTES, 6 * HUGE_BYTES]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_divided_and_never_in_two_places(seed):
    rng = random.Random(seed)
    free, mine = FreePieces(8), [(1000 * i, rng.randint(1, 60)) for i in range(6)]
    owners = {start + i for start, n in mine for i in range(n)}
    free.put(mine)
    held = []
    for _ in range(60):
        if held and rng.random() < 0.5:
            free.put(held.pop(rng.randrange(len(held))))
            continue
        wanted, there = rng.randint(1, 80), free.n_bytes
        held.append(free.take(wanted))
        assert sum(n for _, n in held[-1]) == min(wanted, there) == there - free.n_bytes
    everything = [*(piece for each in held for piece in each), *free.clear()]
    assert sorted(start + i for start, n in everything for i in range(n)) == sorted(owners)
    assert free.n_bytes == 0


def test_units_go_first_and_the_longest_that_fit_are_taken_whole():
    free = FreePieces(8)
    free.put([(0, 16), (104, 24), (204, 8), (304, 5)])  # the third begins within a unit
    assert free.take(34) == [(104, 24), (0, 8), (304, 2)]  # of the shortest, all are longer
    assert free.take(9) == [(8, 8), (306, 1)]
    assert free.take(10) == [(204, 8), (307, 2)]
    assert free.n_bytes == 0
    free.put([(16, 16), (40, 8), (3, 2)])
    assert free.take(4) == [(3, 2), (40, 2)]  # a unit is divided, of the shortest piece
    assert free.take(4) == [(42, 4)]
    assert free.take_within(16, 47) == [(16, 16), (46, 2)]


def test_iterations_do_not_divide_pieces_more_and_more():
    """30 arrays, each there twice in an iteration, in as much memory as it needs at most; twelve such iterations."""
    counts = [pieces_of_iterations(random.Random(seed), 100) for seed in range(12)]
    assert sum(each[-1] for each in counts) < 3 * sum(each[3] for each in counts)


def pieces_of_iterations(rng, n_iterations):
    """The pieces that arrays take in each iteration."""
    unit = 512
    lengths = [rng.choice((rng.randint(1, 4 * unit), unit * rng.randint(4, 80))) for _ in range(30)]
    events = sorted((moment, number) for number in range(30) for moment in rng.sample(range(1000), 4))
    free, held, counts = FreePieces(unit), dict[int, list[tuple[int, int]]](), []
    free.put([(0, most_of(lengths, events))])
    for _ in range(n_iterations):
        counts.append(0)
        for _, number in events:
            if number in held:
                free.put(held.pop(number))
            else:
                held[number] = free.take(lengths[number])
                counts[-1] += len(held[number])
    return counts


def most_of(lengths, events):
    there, most = set(), 0
    for _, number in events:
        there ^= {number}
        most = max(most, sum(lengths[i] for i in there))
    return most


def test_pages_pass_from_array_to_array_and_no_new_one_is_made():
    pages = Pages([rounded(n) for n in LENGTHS])
    pages.most_bytes = sum(LENGTHS[2:])
    for number in (2, 3):
        pages.take(number)
        pages.arrays[number].fill(number)
    pages.drop(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for number in (0, 1):
        pages.take(number)
        assert set(pages.arrays[number][::PAGE_BYTES]) == {2}
        pages.arrays[number].fill(7)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < LENGTHS[0] // PAGE_BYTES
    assert (pages.arrays[3] == 3).all()
    assert pages.n_bytes == sum(LENGTHS[2:])
    pages.drop(3)
    pages.drop(3)  # it is gone already
    pages.give_back()
    assert pages.n_bytes == sum(LENGTHS[:2])


@pytest.mark.parametrize("is_refused", [False, True])
def test_arrays_keep_what_was_written_whoever_comes_and_goes(is_refused, monkeypatch):
    """Against a dictionary; also on a system that does not move pages."""
    if is_refused:
        monkeypatch.setattr(pages_module, "_mremap", lambda *_: -1)
    rng, expected = random.Random(4), {}
    lengths = [rounded(rng.choice((1, 2, 3, 7, 16)) * WORTH_BYTES) for _ in range(12)]
    pages = Pages(lengths)
    pages.most_bytes = sum(lengths) // 2
    for turn in range(1, 200):
        number = rng.randrange(len(lengths))
        if number in expected:
            assert (pages.arrays[number] == expected.pop(number)).all()
            pages.drop(number)
        elif pages.n_bytes - pages._free.n_bytes + lengths[number] <= pages.most_bytes:
            pages.take(number)
            pages.arrays[number].fill(turn)
            expected[number] = turn
        assert pages.n_bytes <= pages.most_bytes
    for number, value in expected.items():
        np.testing.assert_array_equal(pages.arrays[number], np.full(lengths[number], value, np.uint8))


def test_beyond_the_limit_pages_go_back_to_the_system():
    pages = Pages([rounded(LENGTHS[0])])
    pages.take(0)
    pages.arrays[0].fill(9)
    pages.drop(0)
    assert pages.n_bytes == 0 and not pages.arrays[0].any()


def test_where_ranges_of_addresses_are_many_arrays_get_new_pages_in_one(monkeypatch):
    """As many bytes as before; and less of them once they have been renewed."""
    pages = Pages([4 * HUGE_BYTES] * 6)
    pages.most_bytes = 12 * HUGE_BYTES
    for number in (0, 1, 2):
        pages.take(number)
        pages.arrays[number][...] = number + 1
    for number in (0, 1, 2):
        pages.drop(number)
    start, end = address(pages.arrays[3]), address(pages.arrays[5]) + 4 * HUGE_BYTES
    monkeypatch.setattr(pages._maps, "are_many", lambda: True)
    for number in (3, 4, 5):
        pages.take(number)
        assert not pages.arrays[number].any(), "new pages"
        pages.arrays[number][...] = 9
        assert pages.n_bytes == 12 * HUGE_BYTES
    lines = mapped_memory.OWN.read_text().splitlines()
    assert sum(start <= int(line.split("-")[0], 16) < end for line in lines) <= 1
    assert pages._free.n_bytes == 0


def test_ranges_of_addresses_are_counted_now_and_then(monkeypatch, tmp_path):
    own, most = tmp_path / "maps", tmp_path / "most"
    most.write_text("8\n")
    own.write_text("a\n" * 5)
    monkeypatch.setattr(mapped_memory, "OWN", own)
    monkeypatch.setattr(mapped_memory, "MOST", most)
    monkeypatch.setattr(mapped_memory, "EVERY", 3)
    found = mapped_memory.Maps()
    assert found.are_many()
    own.write_text("a\n" * 4)
    assert [found.are_many() for _ in range(4)] == [True, True, False, False]
    own.unlink()
    most.unlink()
    assert not mapped_memory.Maps().are_many()
