"""Where a file cannot be written, commands name it in one line, and what was there before stays."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import scaffe as caffe
from scaffe import atomic_files, log, private_files
from scaffe.cli import main as cli
from scaffe.cli.commands.this_machine import MARK
from scaffe.collectives.errors import CommError
from scaffe.data.records.idx import write_idx
from scaffe.errors import DataError
from scaffe.layers.kernels.cuda.cudnn import plans
from tests.full_disk import full_disk
from tests.scaffe.cli.test_every_command import LEARN, NET
from tests.scaffe.cli.test_scaling import write_log
from tests.test_private_files import needs_root, owned_by_a_stranger

LIMIT = 16
HDF5 = """layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "out" type: "HDF5Output" bottom: "x" bottom: "y" hdf5_output_param { file_name: "open/made.h5" } }"""
WAS_THERE = f"#!/bin/sh\n{MARK}\nbefore\n"
TRAIN_LOG = ("I0101 00:00:00.000000 7 solver.py:98] Solving\n"
             "I0101 00:00:01.000000 7 display.py:30] Iteration 0, loss = 1\n"
             "I0101 00:00:01.000000 7 display.py:31]     Train net output #0: loss = 1\n"
             "I0101 00:00:01.000000 7 display.py:32] Iteration 0, lr = 0.1\n")
TRACE = {"traceEvents": [{"ph": "X", "name": "forward a", "pid": 0, "tid": 0, "ts": 0.0, "dur": 9.0}]}
COMMANDS = {  # {0}: the folder with what they read, {1}: where they write; what they write first there
    "bench": ("bench reduce -m 64 -x 1 -i 2 --json {1}/made", "made"),
    "draw_net": ("draw_net {0}/net.prototxt {1}/made.svg", "made.svg"),
    "parse_log": ("parse_log {0}/log {1}", "log.train"),
    "plot": ("plot {0}/trace.json -output {1}/made.svg", "made.svg"),
    "scaling": ("scaling -strong {0}/strong -json {1}/made", "made"),
    "scaling_plot": ("scaling -strong {0}/strong -plot {1}/made.svg", "made.svg"),
    "timeline": ("train -solver {0}/solver.prototxt -timeline {1}/made", "made"),
    "tune": ("tune -c reduce -m 64 -x 0 -i 1 --memory host -o {1}/made", "made"),
    "upgrade_net_proto_binary": ("upgrade_net_proto_binary {0}/w.caffemodel {1}/made", "made"),
    "upgrade_net_proto_text": ("upgrade_net_proto_text {0}/net.prototxt {1}/made", "made"),
    "upgrade_solver_proto_text": ("upgrade_solver_proto_text {0}/solver.prototxt {1}/made", "made")}
if find_spec("onnx"):
    COMMANDS["export_onnx"] = ("export_onnx {0}/net.prototxt {0}/w.caffemodel {1}/made", "made")
if find_spec("safetensors"):
    COMMANDS["export_torch"] = ("export_torch {0}/net.prototxt {0}/w.caffemodel {1}/made.py", "made.py")
MAKE_FOLDERS = {"install_tools": ("install_tools {1}", "tools/caffe"),
                "simulate": ("simulate --ranks 4 --ranks-per-node 2 --max-bytes 1024 --out {1}", "figure11.svg")}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    (folder / "net.prototxt").write_text(NET)
    (folder / "learn.prototxt").write_text(LEARN)
    (folder / "solver.prototxt").write_text(f'net: "{folder}/learn.prototxt" base_lr: 0.1 lr_policy: "fixed" '
                                            'max_iter: 1 snapshot_after_train: false')
    (folder / "log").write_text(TRAIN_LOG)
    (folder / "trace.json").write_text(json.dumps(TRACE))
    write_log(folder, "strong", 1, 64, [10, 9, 11])
    caffe.Net(str(folder / "net.prototxt"), caffe.TEST).save(str(folder / "w.caffemodel"))
    return folder


def fails(command, sources, folder, capsys):
    """The one line about the file that a command ends with."""
    assert cli.main(command.format(sources, folder).split()) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "cannot be" in line or str(folder) in line]
    assert len(lines) == 1
    return lines[0].partition(": ")[2].replace("; what was there before is unchanged", "")


@pytest.mark.parametrize("name", [*COMMANDS, *MAKE_FOLDERS])
def test_a_full_disk(name, tmp_path, sources, capsys):
    command, made = (COMMANDS | MAKE_FOLDERS)[name]
    target = tmp_path / made
    with full_disk(LIMIT):
        line = fails(command, sources, tmp_path, capsys)
    assert line == f"{target} cannot be written: file too large"
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("name", [*(c for c in COMMANDS if c != "tune"), *MAKE_FOLDERS])
def test_what_was_there_stays(name, tmp_path, sources, capsys):
    command, made = (COMMANDS | MAKE_FOLDERS)[name]
    target = tmp_path / made
    target.parent.mkdir(exist_ok=True)
    target.write_text(WAS_THERE)
    with full_disk(LIMIT):
        line = fails(command, sources, tmp_path, capsys)
    assert line == f"{target} cannot be written: file too large"
    assert target.read_text() == WAS_THERE
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == [target]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_folder(name, tmp_path, sources, capsys):
    command, made = COMMANDS[name]
    line = fails(command, sources, tmp_path / "absent", capsys)
    assert line == f"{tmp_path}/absent/{made} cannot be written: no such file or directory"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name, target", [("install_tools", "log/tools"), ("simulate", "log")])
def test_a_file_where_the_folder_would_be(name, target, sources, capsys):
    line = fails(MAKE_FOLDERS[name][0], sources, sources / "log", capsys)
    assert line.startswith(f"{sources}/{target} cannot be written: ")


def test_a_missing_folder_shows_before_the_measuring(tmp_path, capsys):
    for command in ("tune -o", "bench reduce --json"):
        assert cli.main([*command.split(), f"{tmp_path}/absent/made"]) == 1
        assert capsys.readouterr().out == ""


def test_links_lead_on_and_pipes_are_written(tmp_path):
    def write(path, content):
        atomic_files.write_whole(path, content, CommError)

    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link", b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
    write("/dev/null", b"lost")
    assert (atomic_files.DEVICES / "null").is_char_device()
    with pytest.raises(CommError, match="cannot be written: is a directory"):
        write(tmp_path, b"")


@pytest.mark.parametrize("command", [
    "report {0} -output {0}", "report {1} -output {2}", "plot {3} -output {3}", "plot {3}",
    "scaling -strong {0} -json {0}", "scaling -weak {0} -plot {2}", "draw_net {3} {3}",
    "summary {3} -memory 1MB -output {3}", "train -solver {0} -timeline {0}", "export_onnx {3} {0} {0}",
    "export_onnx {3} {0} {3}", "create_label_map {0} {2}", "get_image_size {1} {0} {0}",
    "get_image_size -name_id_file {0} {1} {3} {0}"])
def test_what_is_read_is_not_overwritten(command, tmp_path, capsys):
    (tmp_path / "log").write_text(TRAIN_LOG)
    (tmp_path / "same").hardlink_to(tmp_path / "log")
    (tmp_path / "made.svg").write_text(json.dumps(TRACE))
    files = [tmp_path / "log", tmp_path, tmp_path / "same", tmp_path / "made.svg"]
    assert cli.main(command.format(*files).split()) == 1
    assert ": is what would be read; give another name" in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "log").read_text() == TRAIN_LOG
    assert json.loads((tmp_path / "made.svg").read_text()) == TRACE


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Makes a link to a file, or folder, that is precious; it belongs to another user."""
    def plant(link, target):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
        if os.geteuid() == 0:
            owned_by_a_stranger(link)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: link.lstat().st_uid + 1)

    return plant


@pytest.mark.parametrize("name", [*(c for c in COMMANDS if c != "tune"), "snapshot", "state", "hdf5", "log"])
def test_another_users_link_is_replaced(name, tmp_path, sources, planted, monkeypatch):
    """And never what it leads to: nobody's link in a folder that all may write, say."""
    monkeypatch.chdir(tmp_path)
    solver = (sources / "solver.prototxt").read_text().replace("false", f'true snapshot_prefix: "{tmp_path}/open/run"')
    (tmp_path / "solver.prototxt").write_text(solver)
    own = {"snapshot": ("train -solver solver.prototxt", "run_iter_1.caffemodel"),
           "state": ("train -solver solver.prototxt", "run_iter_1.solverstate"),
           "hdf5": ("time -iterations 1 -model hdf5.prototxt", "made.h5"),
           "log": ("device_query -log_dir {1}", "caffe.INFO")}
    (tmp_path / "hdf5.prototxt").write_text(HDF5)
    command, made = (COMMANDS | own)[name]
    target, precious = tmp_path / "open" / made, tmp_path / "precious"
    precious.write_text("mine")
    planted(target, precious)
    assert cli.main(command.format(sources, tmp_path / "open").split()) == 0
    assert precious.read_text() == "mine"
    assert target.is_file() and (name == "log" or not target.is_symlink())


@pytest.mark.parametrize("leads_to", ["a device", "a folder", "nothing"])
def test_whatever_it_leads_to(tmp_path, planted, leads_to):
    target = {"a device": "/dev/full", "a folder": tmp_path, "nothing": tmp_path / "absent"}[leads_to]
    planted(tmp_path / "link", target)
    atomic_files.check_writable(tmp_path / "link", CommError)
    atomic_files.write_whole(tmp_path / "link", b"new", CommError)
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("command", [*(command for command, _ in MAKE_FOLDERS.values()),
                                     "train -solver {0}/solver.prototxt -tensorboard {1}"])
def test_another_users_link_to_a_folder_is_refused(command, tmp_path, sources, planted, capsys):
    (tmp_path / "theirs").mkdir()
    planted(tmp_path / "link", "theirs")
    assert cli.main(command.format(sources, tmp_path / "link").split()) == 1
    assert "/link: is a link that belongs to user" in capsys.readouterr().err.splitlines()[-1]
    assert not list((tmp_path / "theirs").iterdir())


def test_links_to_the_systems_own_are_written_to(tmp_path, monkeypatch):
    """As another user than root sees them, whose links they are."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    user = os.geteuid() or 12345
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if os.getuid() == 0:
        os.chown(tmp_path / "link", user, user, follow_symlinks=False)
    for name in ("/dev/stdout", tmp_path / "link"):
        place = atomic_files.place_of(Path(name))
        assert place == Path("/dev/stdout")
        assert atomic_files._is_direct(Path(name), place)


def test_what_takes_a_pipes_place_is_not_written(tmp_path, monkeypatch):
    """Another user may put a link, or a file's second name, there when it has been looked at."""
    (tmp_path / "precious").write_text("mine")
    is_direct = atomic_files._is_direct
    for put in (Path.symlink_to, Path.hardlink_to):
        def swapped(path, place, put=put):
            found = is_direct(path, place)
            path.unlink()
            put(path, tmp_path / "precious")
            return found

        os.mkfifo(tmp_path / "pipe")
        monkeypatch.setattr(atomic_files, "_is_direct", swapped)
        with pytest.raises(CommError, match="pipe cannot be written: (too many levels|file exists)"):
            atomic_files.write_whole(tmp_path / "pipe", b"new", CommError)
        (tmp_path / "pipe").unlink()
    assert (tmp_path / "precious").read_text() == "mine"


def test_pipes_are_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "own").symlink_to("pipe")
    reader, writer = os.pipe()
    ends = [(tmp_path / name, os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)) for name in ("pipe", "own")]
    for path, end in [*ends, (f"/proc/self/fd/{writer}", reader), (f"/dev/fd/{writer}", reader)]:
        atomic_files.write_whole(path, b"new", CommError)
        assert os.read(end, 9) == b"new"
        os.close(end) if end != reader else None
    os.close(reader)
    os.close(writer)


@needs_root
def test_behind_a_link_of_ones_own_too(tmp_path, planted):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "own").symlink_to("folder/theirs")
    planted(tmp_path / "folder" / "theirs", tmp_path / "precious")
    atomic_files.write_whole(tmp_path / "own", b"new", CommError)
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "own").is_symlink()
    assert (tmp_path / "own").read_text() == (tmp_path / "folder" / "theirs").read_text() == "new"


def test_a_log_whose_folder_fills_goes_on_without_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(log, "_file", None)
    monkeypatch.setattr(log, "_folder", str(tmp_path))
    with full_disk(LIMIT):
        for word in ("one", "two"):
            log.info(word)
    said = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" ")[2] for line in said] == ["one", "alone", "two"]
    assert said[1] == f"{tmp_path}: the log cannot be written there (file too large); it goes on here alone"


def test_an_idx_file_is_whole_or_absent(tmp_path):
    with full_disk(LIMIT), pytest.raises(DataError, match="images cannot be written: file too large"):
        write_idx(tmp_path / "images", np.zeros((9, 9), np.uint8))
    assert not list(tmp_path.iterdir())


def test_choices_that_cannot_be_kept_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(private_files.VARIABLE, str(tmp_path))
    plans.keep("a", plans.Choice("1"))
    kept = list((tmp_path / plans.FOLDER).iterdir())
    with full_disk(LIMIT), plans.turn():
        plans.keep("b", plans.Choice("2", b"a plan that is longer than what is left" * 100))
    assert {path.name for path in (tmp_path / plans.FOLDER).iterdir()} == {kept[0].name, "lock"}
    assert (plans.find("a"), plans.find("b")) == (plans.Choice("1"), None)
