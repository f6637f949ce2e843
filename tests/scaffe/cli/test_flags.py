"""The one parser of command lines: gflags' habits (gflags.github.io/gflags, "Setting Flags on the Command Line")."""

import pytest

from scaffe.cli import main as cli
from scaffe.errors import UsageError
from scaffe.flags import REQUIRED, Flags, number, whole
from scaffe.flags.flag import Range, kind_of, truth
from scaffe.memory.options import amount


def flags():
    made = Flags("cook", "Cooks.")
    made.argument("dish", "what to cook")
    made.argument("where", "the stove", default="here", choices=("here", "there"))
    made.flag("heat", 1.5, "how hot", kind=number(-1e4, 1e4, boiling=100.0))
    made.flag("n_pots", 1, "pots", kind=whole(1, 99), short="n")
    made.flag("salt_it", False, "with salt")
    made.flag("stir", True, "stir all the time")
    made.flag("note", "", "a text")
    made.flag("size", "small", "how much", choices=("small", "large"))
    made.pass_over("colour")
    return made


def parsed(*words):
    return vars(flags().parse(["soup", *words]))


@pytest.mark.parametrize(("words", "name", "value"), [
    (["-heat", "2"], "heat", 2.0), (["--heat", "2"], "heat", 2.0), (["-heat=2"], "heat", 2.0),
    (["--heat=-2e3"], "heat", -2000.0), (["-heat", "-2"], "heat", -2.0), ([], "heat", 1.5),
    (["-n", "3"], "n_pots", 3), (["-n=3"], "n_pots", 3), (["--n-pots", "3"], "n_pots", 3), (["-n_pots=3"], "n_pots", 3),
    (["-heat", "boiling"], "heat", 100.0), (["-heat", "+.5e1"], "heat", 5.0), (["-n", "99"], "n_pots", 99),
    (["-heat=1", "-heat=3"], "heat", 3.0),
    ([], "salt_it", False), (["-salt_it"], "salt_it", True), (["--salt-it"], "salt_it", True),
    (["-salt_it=false"], "salt_it", False), (["-salt_it=T"], "salt_it", True),
    (["-salt_it", "-nosalt_it"], "salt_it", False),
    ([], "stir", True), (["-nostir"], "stir", False), (["--nostir"], "stir", False), (["-stir=0"], "stir", False),
    (["-salt_it", "there"], "where", "there"),  # a switch never takes the word after it
    (["-note="], "note", ""), (["-note=a=b"], "note", "a=b"), (["-note", "-x"], "note", "-x"),
    (["-size=large"], "size", "large"), (["there", "-colour", "red"], "where", "there"), ([], "where", "here"),
])
def test_spellings(words, name, value):
    assert parsed(*words)[name] == value


@pytest.mark.parametrize(("words", "said"), [
    (["-hat=2"], "unknown flag -hat=2; did you mean -heat?"), (["-zzz"], "unknown flag -zzz; see"),
    (["-heat", "warm"], "-heat must be boiling or a number from -10000 to 10000, got 'warm'"),
    (["-heat"], "-heat needs a value"),
    (["-heat", "-salt_it"], "-heat needs a value"),
    (["-n", "0"], "-n_pots must be a whole number from 1 to 99, got '0'"),
    *((["-n", word], f"-n_pots must be a whole number from 1 to 99, got '{word[:99]}")
      for word in ("100", "-1", "9" * 5000, "1.5", "1e1", "0x10", "1_0", "²", "", " ", "many")),
    *((["-heat", word], "-heat must be boiling or a number from -10000 to 10000")
      for word in ("nan", "inf", "-inf", "1e400", "-10000.1", "9" * 5000, "1_0", "0x1p3", "")),
    (["-salt_it=perhaps"], "-salt_it must be true or false, got 'perhaps'"),
    (["-noheat"], "unknown flag -noheat"),
    (["-nostir=true"], "unknown flag -nostir=true"),
    (["-size", "huge"], "-size must be one of small, large, got 'huge'"),
    (["nowhere"], "where must be one of here, there, got 'nowhere'"),
    (["here", "x"], "unexpected 'x': takes 2 argument(s)"),
])
def test_mistakes(words, said):
    with pytest.raises(UsageError, match="^cook: ") as caught:
        parsed(*words)
    assert said in str(caught.value)
    assert str(caught.value).endswith("; see scaffe cook -h")


def test_what_must_be_given():
    with pytest.raises(UsageError, match="cook: needs dish"):
        flags().parse([])
    made = flags()
    made.flag("oven", REQUIRED, "which")
    with pytest.raises(UsageError, match="cook: needs -oven"):
        made.parse(["soup"])


def test_words_after_two_dashes_are_arguments():
    assert vars(flags().parse(["--", "-heat"]))["dish"] == "-heat"


def test_a_flag_may_be_said_twice_but_not_differently():
    made = flags()
    made.flag("n_pots", 1, "pots", kind=whole(1, 99), short="n")
    with pytest.raises(ValueError, match="-heat is there already"):
        made.flag("heat", 2.5, "how hot", kind=number(0, 1))


def test_help_shows_every_flag_once_with_its_default(capsys):
    with pytest.raises(SystemExit) as ended:
        flags().parse(["-help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for name, text in (("-heat X", "how hot [1.5; -10000 to 10000]"), ("-n, -n_pots N", "pots [1; 1 to 99]"),
                       ("-salt_it", "with salt [false]"),
                       ("-note NAME", "a text [none]"), ("-size small|large", "how much [small]"),
                       ("dish", "what to cook"), ("where", "the stove: here, there [here]")):
        assert f"  {name:17}  {text}" in said.splitlines()
    assert "colour" not in said


@pytest.mark.parametrize(("kind", "text"), [
    (whole(0, 4096), "0 to 4096"), (whole(-(2**31)), "-2^31 to 2^31-1"), (whole(1, 2**20), "1 to 2^20"),
    (whole(0, 2**32 - 1), "0 to 2^32-1"), (whole(65535, 100000), "65535 to 100000"), (number(0, 1e6), "0 to 1e+06")])
def test_a_range_is_shown_in_few_characters(kind, text):
    assert str(kind) == text


@pytest.mark.parametrize("name", cli.command_names())
def test_every_number_has_a_range(name, monkeypatch):
    """All flags and arguments of the command; texts that hold numbers check them where they are taken apart."""
    found = []
    monkeypatch.setattr(Flags, "parse", lambda self, argv: found.append(self) or self.error("enough"))
    assert cli.main([name]) == 2
    widest = {kind_of(0), kind_of(0.0)}
    for flag in (*found[0].flags.values(), *found[0].arguments):
        assert flag.kind in (str, truth, amount) or isinstance(flag.kind, Range), flag.name
        assert flag.kind not in widest or flag.name in ("level", "resize_width", "resize_height", "min_dim", "max_dim")
        if flag.kind is str:
            assert flag.metavar != "N", flag.name


def test_a_number_that_says_no_range_has_the_widest():
    made = flags()
    made.flag("more", 3, "of something")
    made.flag("less", 0.5, "of something")
    assert vars(made.parse(["soup", "-more", "-7", "-less", "-1e5"])).items() >= {"more": -7, "less": -1e5}.items()
    for words in (["-more", "2147483648"], ["-less", "1e301"], ["-less", "nan"]):
        with pytest.raises(UsageError, match=r"must be a (whole )?number from -\S+ to \S+, got"):
            made.parse(["soup", *words])


@pytest.mark.parametrize("name", cli.command_names())
def test_help_fits_a_terminal(name, capfd, monkeypatch):
    """80 columns and 60 lines, one spelling a flag."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([name, "-h"])
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60
    names = [word for line in lines for word in line.split()[:1] if word.startswith("-")]
    assert len(set(names)) == len(names)
    assert not any(name.startswith("--") or "-" in name[1:] for name in names)


def test_the_commands_are_listed_in_groups(capfd):
    assert cli.main(["-h"]) == 0
    said = capfd.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "Others" not in said
    listed = [line.split()[0] for line in said.splitlines() if line.startswith("  ")]
    assert sorted(listed) == cli.command_names()


@pytest.mark.parametrize(("line", "code", "said"), [
    ("train -allow_nan=perhaps -solver x", 2, "train: -allow_nan must be true or false, got 'perhaps'"),
    ("train -allow_nan=false -solver none.prototxt", 1, "none.prototxt"),
    ("train -noallow_nan -solver none.prototxt", 1, "none.prototxt"),
    ("train", 2, "train: needs -solver"), ("test -model x", 2, "test: needs -weights"),
    ("test -model x -weights y -iterations 0", 2, "-iterations must be a whole number from 1 to 2^31-1, got '0'"),
    ("convert_imageset -gray=maybe a b c", 2, "convert_imageset: -gray must be true or false"),
    ("bench reduce -algoritms mpi", 2, "bench: unknown flag -algoritms; did you mean -algorithms?"),
    ("bench reduce -memory host -unmapped", 2, "bench: -unmapped needs -memory device, not host"),
    ("bench reduce -slack 1", 1, "bench: reduce knows no -slack"),
    ("bench clock -overlap", 1, "bench: clock knows no -overlap"),
    ("bench read -memory host", 1, "bench: read: -memory must be shared or device, not host"),
    ("bench update -T float16", 1, "bench: update: -dtype must be one of float32, float64, not float16"),
    ("bench clock -slack 0,x", 1, "bench: -slack needs whole numbers from 0 to 2^31-1 or inf, as in 0,1,inf, not 0,x"),
    ("bench clock -slack -1", 1, "bench: -slack needs whole numbers from 0 to 2^31-1 or inf, as in 0,1,inf, not -1"),
    ("bench clock -servers 1", 1, "bench: servers must be from 0 to 0 on 1 ranks, so that one can work; got 1"),
    ("bench reduce -memory disk", 2, "bench: -memory must be one of shared, host, device, got 'disk'"),
    ("tune --memory disk", 2, "tune: -memory takes shared, host, device, not 'disk'"),
    ("bench clock -slack 1e400", 1, "bench: -slack needs whole numbers from 0 to 2^31-1 or inf"),
    ("bench reduce -m 4:40000000000000", 1, "bench: -m: no memory for messages of 35184372088832 bytes, two a rank"),
    ("bench reduce -m 4:4000000000000000", 1, "bench: -m needs MIN:MAX in bytes from 0 to 2^46"),
    ("bench reduce -m ²", 1, "bench: -m needs MIN:MAX in bytes from 0 to 2^46"),
    ("bench reduce -a C@99999999999999999999", 1, "the chunk after @, in bytes, must be a whole number from 0 to 2^46"),
    ("tune -m 4:40000000000000 -o t.json", 1, "-m: no memory for messages of 17592186044416 bytes, two a rank"),
    ("tune -c reduce,x -a C", 2, "tune: -collectives takes reduce, "),
    ("tune -chunks ,", 2, "tune: -chunks must be bytes from 1 to 2^46 with commas between, got ','"),
    ("tune -chunks 8,x", 2, "tune: -chunks must be bytes from 1 to 2^46 with commas between, got '8,x'"),
    ("train -solver x -level 99999999999", 2, "-level must be a whole number from -2^31 to 2^31-1"),
    ("train -solver x -readers 100000", 2, "-readers must be auto or a whole number from 1 to 4096"),
    ("train -solver x -memory 99999999999999999999999TB", 2, "-memory must be at most 1e+06 TB"),
    ("train -solver x -threads 9999999999999999999999", 2, "-threads must be auto or a whole number from 0 to 4096"),
    ("summary data.prototxt -shape 1,99999999999999999999999", 1, "-shape must be whole numbers from 1 to 2^31-1"),
    ("simulate -max_bytes 4", 2, "simulate: -max_bytes must be a whole number from 1024 to 2^40"),
    ("simulate -ranks 1", 2, "simulate: -ranks must be a whole number from 2 to 4096"),
    ("simulate --rank 4", 2, "simulate: unknown flag --rank; did you mean -ranks?"),
])
def test_commands_share_the_habits(line, code, said, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.prototxt").write_text('layer { name: "d" type: "Data" top: "x" data_param { source: "db" } }')
    assert cli.main(line.split()) == code
    err = capfd.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
