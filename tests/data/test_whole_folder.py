"""-force replaces databases and nothing else; a kill at any moment leaves the old one or the new one whole."""

import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from scaffe.data.convert import whole_folder
from scaffe.data.convert.leveldb_writer import write_leveldb
from scaffe.data.convert.writers import write_lmdb
from scaffe.data.sources.leveldb import LevelDbSource
from scaffe.errors import DataError
from tests.test_private_files import needs_root, owned_by_a_stranger

ROOT = Path(__file__).resolve().parent.parent.parent
OLD, NEW = [(b"old", b"1")], [(b"new", b"2")]


def records(path):
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as transaction:
        return list(transaction.cursor())


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["thesis.tex", "data.mdb.bak", ".hidden", "photos/data.mdb", "data.mdb/x", "0005.txt"])
def test_a_folder_with_anything_else_is_not_touched(tmp_path, name):
    write_lmdb(tmp_path / "db", OLD)
    (tmp_path / "db/data.mdb").rename(tmp_path / "kept")
    (tmp_path / "db" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "db" / name).write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(DataError, match=f"{name.split('/')[0]}' in it is no file of a database"):
        write_lmdb(tmp_path / "db", NEW, force=True)
    assert snapshot(tmp_path) == before


def test_what_comes_during_the_work_is_not_removed_either(tmp_path):
    write_lmdb(tmp_path / "db", OLD)

    def slow():
        yield from NEW
        (tmp_path / "db/mine").write_text("mine")

    with pytest.raises(DataError, match="'mine' in it"):
        write_lmdb(tmp_path / "db", slow(), force=True)
    assert records(tmp_path / "db") == OLD
    assert (tmp_path / "db/mine").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_a_file_is_no_folder_and_a_link_leads_to_one(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="file: is no folder"):
        write_lmdb(tmp_path / "file", NEW, force=True)
    (tmp_path / "elsewhere").mkdir()
    write_lmdb(tmp_path / "elsewhere/db", OLD)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere/db")
    write_lmdb(tmp_path / "link", NEW, force=True)
    assert records(tmp_path / "elsewhere/db") == NEW
    assert (tmp_path / "link").is_symlink()


@needs_root
@pytest.mark.parametrize("in_one_step", [True, False])
def test_another_users_link_is_replaced_and_not_what_it_leads_to(tmp_path, monkeypatch, in_one_step):
    if not in_one_step:
        monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    write_lmdb(tmp_path / "precious", OLD)
    (tmp_path / "db").symlink_to("precious")
    owned_by_a_stranger(tmp_path / "db")
    with pytest.raises(DataError, match="db: exists already"):
        write_lmdb(tmp_path / "db", NEW)
    write_lmdb(tmp_path / "db", NEW, force=True)
    assert records(tmp_path / "precious") == OLD
    assert records(tmp_path / "db") == NEW
    assert not (tmp_path / "db").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"precious", "db"}


def test_a_database_in_a_link_is_no_database(tmp_path):
    (tmp_path / "db").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "db/data.mdb").symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="'data.mdb' in it"):
        write_lmdb(tmp_path / "db", NEW, force=True)


@pytest.mark.parametrize("in_one_step", [True, False])
@pytest.mark.parametrize("old", [write_lmdb, write_leveldb, lambda path, records: path.mkdir()])
def test_a_database_of_any_kind_is_replaced(tmp_path, monkeypatch, old, in_one_step):
    if not in_one_step:
        monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    old(tmp_path / "db", OLD)
    write_leveldb(tmp_path / "db", NEW, force=True)
    assert list(LevelDbSource(tmp_path / "db").items()) == NEW
    write_lmdb(tmp_path / "db", NEW, force=True)
    assert records(tmp_path / "db") == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


KILLED = """
import os, signal, sys
from pathlib import Path
from scaffe.data.convert import whole_folder
from scaffe.data.convert.writers import write_lmdb

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def records():
    yield b"new", b"2"
    if sys.argv[1] == "writing":
        die()

if sys.argv[1] == "renaming":
    whole_folder._exchange = lambda one, other: False
    rename = Path.rename
    Path.rename = lambda path, target: die() if path.name.endswith(".part") else rename(path, target)
if sys.argv[1] == "removing":
    put_in_place = whole_folder._put_in_place
    whole_folder._put_in_place = lambda *paths: (put_in_place(*paths), die())
write_lmdb("db", records(), force=True)
"""


@pytest.mark.parametrize(("moment", "name", "left"), [("writing", "db", OLD), ("renaming", "db.old", OLD),
                                                      ("removing", "db", NEW)])
def test_a_kill_leaves_one_of_the_two_and_the_next_run_cleans_up(tmp_path, moment, name, left):
    write_lmdb(tmp_path / "db", OLD)
    done = subprocess.run([sys.executable, "-c", KILLED, moment], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    assert records(tmp_path / name) == left
    write_lmdb(tmp_path / "db", NEW, force=True)
    assert records(tmp_path / "db") == NEW
    assert {path.name for path in tmp_path.iterdir()} <= {"db", "db.old"}
