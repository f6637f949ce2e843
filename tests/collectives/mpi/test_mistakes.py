"""What ranks do wrong is the same CommError on all of them, and the next collective works."""

import numpy as np
import pytest

from scaffe.collectives import CommError
from scaffe.collectives.shared import window
from tests.collectives.everywhere import one_message


def fails_everywhere(communicator, call):
    """The one message that every rank's CommError carries."""
    return one_message(communicator, call, np.ones(3, np.float32))


@pytest.mark.parametrize("name", ["mpi", "C", "B"])
def test_lengths_differ(communicator, last, name):
    array = np.zeros(1234 if last else 1233, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm=name))
    assert "1233" in message
    assert f"rank {communicator.n_ranks - 1} has" in message
    assert "1234" in message


@pytest.mark.parametrize("name", ["mpi", "C"])
def test_dtypes_differ(communicator, last, name):
    array = np.zeros(321, np.float64 if last else np.float32)
    message = fails_everywhere(communicator, lambda: communicator.allreduce(array, algorithm=name))
    assert "float32" in message
    assert "float64" in message


def test_roots_differ(communicator, last):
    array = np.zeros(322, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.bcast(array, root=int(last), algorithm="B"))
    assert "root 1" in message


def test_root_is_no_rank(communicator):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone needs no root")
    array = np.zeros(5, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, root=99, algorithm="C"))
    assert "not 99" in message


def test_places_differ_even_when_the_call_is_known(communicator, last):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    shared = communicator.alloc(777)
    communicator.reduce(shared, algorithm="M")
    private = np.zeros(777, np.float32)
    communicator.reduce(private, algorithm="M")
    array = private if last else shared
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm="M"))
    assert "private memory" in message
    assert "window" in message


def test_offsets_differ(communicator, last):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    shared = communicator.alloc(100)
    array = shared[10:60] if last else shared[20:70]
    assert "byte 80" in fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm="M"))


def test_alloc_where_one_node_has_no_memory(communicator, last, monkeypatch):
    """Other nodes' ranks have theirs, and would go on."""
    if last:
        refuse_memory(monkeypatch)
    assert "has no shared memory of 1000 bytes: none" in fails_everywhere(communicator, lambda: communicator.alloc(250))


def test_alloc_of_some_of_the_ranks(communicator, last, monkeypatch):
    """A mistake that all of these share is not everybody's: the others wait, until the first of these ends the job."""
    some, again = communicator.split(0 if last else 1), communicator.split(0)
    refuse_memory(monkeypatch)
    for ranks, wanted in ((some, some.rank), (again, None)):
        with pytest.raises(CommError) as caught:
            ranks.alloc(250)
        assert caught.value.everywhere and caught.value.rank_in_subset == wanted


def refuse_memory(monkeypatch):
    def refuse(n_bytes):
        raise OSError("none")

    monkeypatch.setattr(window, "create", refuse)


def test_alloc_of_different_lengths(communicator, last):
    if communicator.node_n_ranks < communicator.n_ranks:
        pytest.skip("ranks on several nodes")
    fails_everywhere(communicator, lambda: communicator.alloc(10 + last))


@pytest.mark.parametrize(("call", "text"), [
    (lambda c: c.reduce(np.zeros(4, np.float32), algorithm="Q"), "no algorithm is called 'Q'"),
    (lambda c: c.reduce(np.zeros(4, np.float32), algorithm="R"), "cannot do reduce"),
])
def test_no_such_algorithm(communicator, call, text):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone needs no algorithm")
    assert text in fails_everywhere(communicator, lambda: call(communicator))


@pytest.mark.parametrize(("call", "text"), [
    (lambda c: c.reduce(np.zeros(4, np.complex64)), "dtype must be one of"),
    (lambda c: c.reduce(np.zeros(4, np.float32), op="mean"), "op must be one of"),
    (lambda c: c.bcast(np.zeros((4, 4), np.float32)[:, 1]), "contiguous"),
    (lambda c: c.reduce(np.zeros(4, np.float32), out=np.zeros(5, np.float32)), "out must be 4 x float32"),
])
def test_arrays_that_cannot_be(communicator, call, text):
    with pytest.raises(CommError, match=text):
        call(communicator)


def test_agree(communicator, last):
    communicator.agree(("same", 3), "the net")
    message = fails_everywhere(communicator, lambda: communicator.agree(int(last), "the seed"))
    assert message == f"the seed differs: rank 0 has 0, rank {communicator.n_ranks - 1} has 1"


def frozen(array):
    """The array, as one that must not be written."""
    array.flags.writeable = False
    return array


ALGORITHMS = {"reduce": ("mpi", "C", "H", "M", "MB", "auto"), "allreduce": ("mpi", "R", "M", "MR", "auto"),
              "reduce_scatter": ("mpi", "P", "M", "auto"), "allgather": ("mpi", "D", "M", "auto"),
              "bcast": ("mpi", "C", "M", "MB", "auto")}


@pytest.mark.parametrize("form", ["", "i"])
@pytest.mark.parametrize("collective", ALGORITHMS)
def test_a_read_only_array_that_would_be_written_is_refused_before_anything_is_sent(communicator, collective, form):
    """On one rank or on all; root or not: the others' arrays stay as they are."""
    n_ranks, last = communicator.n_ranks, communicator.n_ranks - 1
    call = getattr(communicator, form + collective)
    for n_elems, name in enumerate(ALGORITHMS[collective], start=40):
        if (name == "M" and communicator.topology.n_nodes > 1) or (collective == "bcast" and n_ranks == 1):
            continue
        for guilty in ([0], [last], range(n_ranks)):
            root = {"root": last if guilty == [0] else 0} if collective == "bcast" else {}
            array = np.full(n_elems, communicator.rank, np.float32)
            message = fails_everywhere(communicator, lambda array=array, guilty=guilty, name=name, root=root: call(
                frozen(array) if communicator.rank in guilty else array, algorithm=name, **root))
            assert "writes into its array, which is read-only" in message
            assert message.startswith(f"rank {guilty[0]}: ") or len(guilty) == n_ranks or collective == "bcast"
            assert (array == communicator.rank).all()


@pytest.mark.parametrize("name", ["mpi", "C", "M", "auto"])
def test_a_broadcasts_root_and_an_input_beside_out_may_be_read_only(communicator, name):
    if name == "M" and communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    array = np.arange(31, dtype=np.float32) * (communicator.rank == 0)
    communicator.bcast(frozen(array) if communicator.rank == 0 else array, algorithm=name)
    assert np.array_equal(array, np.arange(31))
    given, out = frozen(np.arange(33.0)), np.zeros(33)
    communicator.allreduce(given, algorithm=name, out=out)
    assert np.array_equal(out, np.arange(33) * communicator.n_ranks)
    frozen(out)
    assert "read-only" in fails_everywhere(communicator, lambda: communicator.allreduce(np.zeros(33), "sum", name, out))


@pytest.mark.parametrize(("arguments", "text"), [
    ({"algorithm": None}, "algorithm must be a name such as auto, mpi or CB-8, not None"),
    ({"algorithm": ["C"]}, "not ['C']"), ({"algorithm": 3}, "not 3"),
    ({"root": None}, "root must be an integer, not None"),
    ({"root": "0"}, "root must be an integer, not '0'"), ({"root": -1}, "root must be a rank below"),
    ({"op": None}, "op must be one of"), ({"op": ["sum"]}, "op must be one of"),
    ({"chunk_bytes": None}, "chunk_bytes must be an integer"), ({"chunk_bytes": -4}, "chunk_bytes must be 0"),
    ({"chunk_bytes": 1 << 31}, "chunk_bytes must be at most 2147483647, not 2147483648"),
    ({"root": 0.0}, "root must be an integer, not 0.0"), ({"chunk_bytes": 0.0}, "chunk_bytes must be an integer"),
    ({"out": 3}, "expected a NumPy array"), ({"array": None}, "expected a NumPy array"),
    ({"array": [1.0]}, "expected a NumPy array"),
])
@pytest.mark.parametrize("form", ["", "i"])
def test_an_argument_of_a_wrong_type(communicator, last, form, arguments, text):
    """On the last rank alone, then on all."""
    call = getattr(communicator, f"{form}reduce")
    for is_guilty in (last, True):
        given = {"array": np.ones(7, np.float32)} | (arguments if is_guilty else {})
        assert text in fails_everywhere(communicator, lambda given=given: call(**given))


@pytest.mark.parametrize("arguments", [{"root": 0.0}, {"chunk_bytes": 0.0}, {"root": 0j}])
def test_a_wrong_type_that_equals_what_is_known(communicator, arguments):
    call = {"array": np.ones(17, np.float32), "root": 0, "chunk_bytes": 0}
    communicator.reduce(**call)
    call |= arguments
    assert "must be an integer, not 0" in fails_everywhere(communicator, lambda: communicator.reduce(**call))


@pytest.mark.parametrize(("arguments", "text"), [
    (("many",), "n_elems must be an integer, not 'many'"), ((None,), "not None"), ((-1,), "n_elems must be 0 or more"),
    ((5, "floaty"), "floaty"), ((5, "float32", "moon"), "memory must be one of host, device, not 'moon'"),
    ((1 << 50,), "no memory for"), ((4, object), "dtype must be of numbers, not object"),
    ((4, "S"), "dtype must be of numbers"),
    ((4, [("a", object)]), "dtype must be of numbers"), ((4, "3f4"), "dtype must be of numbers"),
])
def test_memory_that_cannot_be_asked_for(communicator, last, arguments, text):
    for is_guilty in (last, True):
        message = fails_everywhere(communicator, lambda good=not is_guilty: communicator.alloc(*(
            (5,) if good else arguments)))
        assert text in message
        assert "\n" not in message


def of_objects(c, root):
    """The calls of objects that have a root."""
    return lambda: c.bcast_object([c.rank], root), lambda: c.gather_objects([c.rank], root)


@pytest.mark.parametrize("root", [None, -1, "0", 1.0, 99])
def test_roots_of_objects(communicator, root):
    """On all ranks, or on one alone, which says so."""
    c = communicator
    for guilty in (range(c.n_ranks), [0], [c.n_ranks - 1]):
        for call in of_objects(c, root if c.rank in guilty else 0):
            message = fails_everywhere(c, call)
            assert message.startswith(("" if len(guilty) == c.n_ranks else f"rank {guilty[0]}: ") + "root must be")
            assert repr(root) in message and "\n" not in message


def test_calls_of_objects_differ(communicator, last):
    """In the root, or in the call, also where each of them has been made before."""
    c, end = communicator, communicator.n_ranks - 1
    for _ in range(2):
        for call, name in zip(of_objects(c, int(last)), ("bcast", "gather"), strict=True):
            assert fails_everywhere(c, call) == (f"ranks disagree: rank 0 has {name} of objects (root 0), rank {end} "
                                                 f"has {name} of objects (root 1)")
        message = fails_everywhere(c, lambda: c.allgather_objects(1) if last else c.bcast_object(1))
        assert message.endswith(f"rank 0 has bcast of objects (root 0), rank {end} has allgather of objects")
        assert [c.bcast_object(c.rank, root) for root in (0, 1)] == [0, 1]
        assert [c.gather_objects(c.rank, root) for root in (0, 1)] == [
            list(range(c.n_ranks)) if c.rank == root else None for root in (0, 1)]


@pytest.mark.parametrize(("arguments", "text"), [
    ((1 << 40,), "color must be at most 2147483647, not 1099511627776"), ((-3,), "color must be 0 or more, not -3"),
    ((1.0,), "color must be an integer, not 1.0"), ((0, 1 << 31), "key must be at most 2147483647"),
    ((0, -(1 << 31) - 1), "key must be -2147483648 or more")])
def test_a_split_that_cannot_be(communicator, last, arguments, text):
    for is_guilty in (last, True):
        message = fails_everywhere(communicator, lambda good=not is_guilty: communicator.split(*(
            (0,) if good else arguments)))
        assert text in message


class Unwilling:
    """An object that cannot be pickled."""

    def __reduce__(self):
        raise ZeroDivisionError("not\nmine")


@pytest.mark.parametrize("value", [Unwilling(), lambda: 1])
def test_an_object_that_cannot_be_pickled(communicator, value):
    c, root = communicator, communicator.n_ranks - 1
    text = f"{f'rank {root}: ' if root else ''}an object of type {type(value).__name__} cannot be pickled: "
    guilty = value if c.rank == root else 3
    for call in (lambda: c.bcast_object(guilty, root), lambda: c.gather_objects(guilty, 0),
                 lambda: c.gather_objects(guilty, root), lambda: c.allgather_objects(guilty),
                 lambda: c.agree(guilty, "it")):
        message = fails_everywhere(c, call)
        assert message.startswith(text) and "\n" not in message
    assert c.bcast_object(value if c.rank != root else 5, root) == 5  # only the root's counts


def test_objects_arrive(communicator):
    c, root = communicator, communicator.n_ranks // 2
    mine = {"rank": c.rank, "values": np.full(3, c.rank)}
    assert c.bcast_object(mine, root)["values"].tolist() == [root] * 3
    found = c.gather_objects(mine, root)
    everyone = c.allgather_objects(mine)
    assert (found is None) == (c.rank != root)
    for several in filter(None, (found, everyone)):
        assert [each["rank"] for each in several] == list(range(c.n_ranks))


def test_parts_of_ranks_that_are_not_there(communicator):
    c = communicator
    assert c.part(c.n_ranks * 4, c.n_ranks - 1) == slice(4 * c.n_ranks - 4, 4 * c.n_ranks)
    for arguments, text in (((8, c.n_ranks), "rank must be a rank below"), ((8, -1), "rank must be"),
                            ((8, 0.0), "rank must be an integer"), ((8.0,), "n_elems must be an integer"),
                            ((-1,), "n_elems must be 0 or more, not -1")):
        with pytest.raises(CommError, match=text):
            c.part(*arguments)
