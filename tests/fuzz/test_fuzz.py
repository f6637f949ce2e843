"""All that ever failed is read as it should be; and the fuzzer sees what it is there for."""

import ctypes
import os
import random

import pytest

from scaffe.errors import UserError
from tests.fuzz import campaign, children, commands, corpus
from tests.fuzz.campaign import good_inputs
from tests.fuzz.kind import Kind, all_kinds

KEPT = corpus.all_kept()
LONG = ("command_line",)  # runs every command


@pytest.mark.parametrize("name", KEPT)
def test_what_failed_once(name):
    kind = all_kinds()[name]
    good_inputs(kind)
    verdicts = children.verdicts(kind.read, [corpus.unpack(path) for path in KEPT[name]], kind.patience)
    assert {path.name: verdict for path, verdict in zip(KEPT[name], verdicts, strict=True) if verdict} == {}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.thorough) if name in LONG else name
                                  for name in all_kinds()])
def test_good_inputs_are_read_and_damage_comes_again(name):
    kind = all_kinds()[name]
    seeds = good_inputs(kind)  # each must be read
    for number in range(20):
        files = seeds[number % len(seeds)]
        one, other = (kind.mutate(random.Random(number), files) for _ in range(2))
        assert one == other and one.keys() == files.keys()


def crash(folder):
    ctypes.string_at(8)


def block(folder):
    os.mkfifo(folder / "pipe")
    (folder / "pipe").open().read()


def spin(folder):
    while True:
        pass


def refuse(line):
    def read(folder):
        raise UserError(line.format(folder))
    return read


def refuse_in_two_lines(folder):
    error = UserError("")
    error.args = f"{folder}/a:\nno",  # what UserError itself does not let pass
    raise error


@pytest.mark.parametrize(("read", "verdict"), [
    (lambda folder: None, ""), (refuse("{}/a: no"), ""), (crash, "dies of SIGSEGV"),
    (lambda folder: bytes(3 << 30), "takes more than"), (lambda folder: os._exit(3), "exits with 3"),
    (lambda folder: 1 / 0, "ZeroDivisionError"), (refuse_in_two_lines, "is refused in 2 lines"),
    (refuse("no"), "is refused without a file's name"),
])
def test_what_becomes_of_an_input_is_seen(read, verdict):
    """Each of three inputs, though the child that reads it may die."""
    for found in children.verdicts(read, [{"file": b"x"}] * 3):
        assert found.startswith(verdict) and bool(found) == bool(verdict)


@pytest.mark.parametrize(("read", "limit", "verdict"), [
    (block, "CLOCK_SECONDS", "waits for"), (spin, "LIMIT_SECONDS", "hangs for"),
])
def test_what_never_ends_is_seen(read, limit, verdict, monkeypatch):
    monkeypatch.setattr(children, limit, 0.05)
    for found in children.verdicts(read, [{"file": b"x"}] * 2):
        assert found.startswith(verdict)


def test_a_kind_may_have_more_time(monkeypatch):
    monkeypatch.setattr(children, "LIMIT_SECONDS", 0.25)
    (found,) = children.verdicts(spin, [{"file": b"x"}], 2)
    assert found == "hangs for 0.5 s"


def test_an_input_is_kept_and_comes_back(tmp_path):
    files = {"a": b"\x00\xff" * 1000, "list": b""}
    path = corpus.keep(tmp_path, "lmdb", files)
    assert path.parent.name == "lmdb" and path.stat().st_size < 500 and corpus.unpack(path) == files


@pytest.mark.parametrize(("what", "wrong"), [
    ("pass", ""), ("raise ValueError('own')", "a traceback: ValueError: own"), ("os.abort()", "dies of SIGABRT"),
    ("os._exit(7)", "ends with 7 after 0 lines"), ("os._exit(1)", "ends with 1 after 0 lines"),
    ("[open('net.prototxt') for _ in range(999)]", "a traceback: OSError"), ("time.sleep(9999)", "no end within 2 s"),
    ("print('I say\\nso', file=sys.stderr), os._exit(2)", "ends with 2 after 2 lines"),
    ("bytes(9 << 30)", "a traceback: MemoryError"), ("os._exit(0)", "takes "),
])
def test_how_a_command_line_ends_is_seen(tmp_path, monkeypatch, what, wrong):
    """A layer of the user's own does it; what that raises has its traceback below the line."""
    monkeypatch.setattr(commands, "LIMIT_SECONDS", 2 if "sleep" in what else 100)
    monkeypatch.setattr(commands, "LIMIT_BYTES", 1 << 20 if wrong == "takes " else commands.LIMIT_BYTES)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/net.prototxt").write_text(
        'layer { name: "l" type: "Python" top: "x" python_param { module: "mine" layer: "Mine" } }')
    (tmp_path / "there/mine.py").write_text(f"import os, sys, time\n{what}\n")
    found = commands.verdict(["summary", "net.prototxt"], {}, tmp_path / "there")
    assert found.startswith(wrong) and bool(found) == bool(wrong), found


def test_every_kind_has_its_share_of_the_time(tmp_path, monkeypatch):
    """By a clock that one kind's rounds move ten times as far as the other's; one round each where there is none."""
    now = [0.0]
    monkeypatch.setattr(campaign.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(campaign, "good_inputs", lambda kind: [{}])
    monkeypatch.setattr(campaign.children, "verdicts",
                        lambda read, inputs, patience: now.__setitem__(0, now[0] + read(inputs)) or [""] * len(inputs))
    kinds = {name: Kind(None, lambda inputs, cost=cost: cost, lambda rng, files: files, n_at_once=n)
             for name, cost, n in (("slow", 10.0, 2), ("quick", 1.0, 50))}
    monkeypatch.setattr(campaign, "all_kinds", lambda: kinds)
    for end, said in ((200.0, "(slow 20, quick 5000)"), (0.0, "(slow 2, quick 50)")):
        made, now[0] = campaign.Campaign(None, 1, tmp_path), 0.0
        made.run(end)
        assert said in made.summary()
