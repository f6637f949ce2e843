"""The number of readers, driven by simulated feeds: a reader makes a batch in some time, the net takes some for it."""

import numpy as np
import pytest

from scaffe.data.feeds.reader_count import ReaderCount


def run(count, n_batches, read, own, most_useful=1000, rng=None):
    """Tell the count of batches as a queueless feed gives them; returns the number of readers after each.

    Args:
        count: to tell.
        n_batches: how many.
        read: seconds in which one reader makes a batch.
        own: seconds that the net takes for one.
        most_useful: more readers than these make nothing faster (a disk, or cores that are busy).
        rng: adds noise of 0.5 %.
    """
    numbers = []
    for _ in range(n_batches):
        noise = 1 + 0.005 * rng.standard_normal() if rng is not None else 1
        made = read / min(count.n, most_useful) * noise
        waited = max(0.0, made - own)
        numbers.append(count.after_batch(waited, own + waited, min(read, count.n * (own + waited))))
    return numbers


@pytest.mark.parametrize("read, own, expected", [(0.5, 1, 1), (0.98, 1, 1), (3.5, 1, 4), (12.2, 1, 13), (1.5, 1, 2)])
def test_as_many_as_the_times_ask_for(read, own, expected):
    count = ReaderCount(16)
    assert run(count, 400, read, own)[-1] == expected
    assert count.choice.startswith(f"{expected} of at most 16 readers")


def test_one_reader_stays_alone_where_it_is_never_waited_for():
    assert set(run(ReaderCount(16), 400, 0.1, 1)) == {1}


def test_reading_that_takes_much_of_the_time_tries_another_ever_more_rarely():
    numbers = run(ReaderCount(16), 2000, 0.4, 1)
    assert set(numbers) == {1, 2}
    assert np.mean(numbers) < 1.06


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_that_holds_up_one_of_the_computing_cores_gets_company(seed):
    """Two cores compute, and wait for each other; a reader takes half of the core that it shares."""
    rng, count, numbers = np.random.default_rng(seed), ReaderCount(2), []
    for _ in range(3000):
        read, own = 0.4 * (1 + 0.005 * rng.standard_normal()), 1 + 0.005 * rng.standard_normal()
        numbers.append(count.after_batch(0.0, own + read / (2 * count.n), read))
    assert np.mean(numbers) > 1.9


def test_never_more_than_the_most():
    count = ReaderCount(3)
    assert max(run(count, 1000, 50, 1)) == 3


def test_what_there_is_no_room_for_is_not_asked_for_again():
    count = ReaderCount(16)
    run(count, 100, 9, 1)
    assert count.n > 3
    assert count.stay_within(3) == 3
    assert max(run(count, 1000, 9, 1)) == 3


def test_readers_that_do_not_help_are_taken_back():
    """Both cores are busy, or the disk is: the second reader changes nothing."""
    numbers = run(ReaderCount(8), 2000, 3, 1, most_useful=1)
    assert numbers[-1] == 1
    assert np.mean(numbers) < 1.6  # and it is tried ever more rarely


def test_those_not_needed_are_parked_and_come_back():
    count = ReaderCount(8)
    assert run(count, 200, 4.5, 1)[-1] == 5
    assert run(count, 2000, 0.5, 1)[-1] == 1
    assert run(count, 200, 4.5, 1)[-1] == 5


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_carry_it_away(seed):
    rng = np.random.default_rng(seed)
    assert run(ReaderCount(16), 3000, 2.2, 1, rng=rng)[-1] in (2, 3, 4)
    assert run(ReaderCount(16), 3000, 0.5, 1, rng=rng)[-1] == 1


def test_it_chooses_once_and_says_so_in_one_sentence():
    count = ReaderCount(8)
    run(count, 400, 2.5, 1)
    first = count.choice
    run(count, 400, 6, 1)
    assert count.choice == first
    assert first == ("3 of at most 8 readers: a batch takes 2.5e+03 ms to read and comes every 1e+03 ms, "
                     "of which the net waits 0.0%")
