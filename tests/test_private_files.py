"""What is kept from run to run is read only where no other user can have put it: planted code is not run."""

import hashlib
import os
import pickle
import re
import stat
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffe import private_files
from scaffe.layers.kernels.cuda.cudnn import plans
from scaffe.layers.kernels.cuda.cudnn.plans import Choice
from tests.test_jit import CALLEE, said

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that belong to another user")


def owned_by_a_stranger(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def make(folder: Path, kind: str) -> Path:
    """A folder of each kind, named to who would keep something there."""
    home = folder / "home"
    (home / "cache").mkdir(parents=True)
    if kind == "a stranger's":
        owned_by_a_stranger(home / "cache")
    elif kind == "below a stranger's":
        owned_by_a_stranger(home)
    elif kind in ("everyone's", "sticky", "a group's"):
        (home / "cache").chmod({"everyone's": 0o777, "sticky": 0o1777, "a group's": 0o775}[kind])
    elif kind in ("below everyone's", "below sticky"):
        home.chmod(0o777 if kind == "below everyone's" else 0o1777)
    elif kind in ("a link", "a stranger's link", "a link over everyone's"):
        over = folder / "over"
        over.mkdir()
        (over / "link").symlink_to("../home" if kind != "a link over everyone's" else "../open/back")
        if kind == "a stranger's link":
            owned_by_a_stranger(over / "link")
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)
        (folder / "open" / "back").symlink_to("../home")
        return over / "link" / "cache"
    elif kind == "a loop":
        (home / "cache").rmdir()
        (home / "cache").symlink_to("cache")
    return home / "cache"


@needs_root
@pytest.mark.parametrize(("kind", "reason"), [
    ("mine", ""), ("below sticky", ""), ("a link", ""),
    ("a stranger's", "home/cache belongs to user 65534"), ("below a stranger's", "home belongs to user 65534"),
    ("everyone's", r"others may write in .*/home/cache \(mode 777\)"), ("sticky", r"home/cache \(mode 1777\)"),
    ("a group's", r"home/cache \(mode 775\)"), ("below everyone's", r"others may write in .*/home \(mode 777\)"),
    ("a stranger's link", "over/link belongs to user 65534"), ("a link over everyone's", r"open \(mode 777\)"),
    ("a loop", "too many links"), ])
def test_a_folder_that_others_may_change_is_refused(tmp_path, kind, reason, monkeypatch):
    folder = make(tmp_path, kind)
    found = private_files.why_others_may_change(folder)
    assert re.search(reason, found) if reason else found == ""
    monkeypatch.setattr(private_files.tempfile, "tempdir", str(tmp_path))
    private_files._usable.cache_clear()
    assert private_files.first_usable([folder]) == (tmp_path / f"scaffe-{os.geteuid()}" if reason else folder)


@needs_root
def test_a_file_that_others_may_change_is_not_read(tmp_path):
    path = tmp_path / "kept"
    private_files.write(path, b"mine")
    assert private_files.read(path) == b"mine"
    for change in (lambda: path.chmod(0o666), lambda: path.chmod(0o664), lambda: owned_by_a_stranger(path)):
        path.chmod(0o644)
        change()
        assert private_files.read(path) is None
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert private_files.read(path) is None
    path.unlink()
    os.mkfifo(path)
    assert private_files.read(path) is None
    assert private_files.read(tmp_path / "absent") is None


def test_a_folder_that_is_made_is_the_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path / "a" / "b"))
    old = os.umask(0)
    try:
        folder = private_files.kept_folder("c")
    finally:
        os.umask(old)
    assert folder == tmp_path / "a" / "b" / "c"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3


@needs_root
def test_without_any_folder_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / f"scaffe-{os.geteuid()}").mkdir()
    owned_by_a_stranger(tmp_path / f"scaffe-{os.geteuid()}")
    monkeypatch.setattr(private_files.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SCAFFE_CACHE", "/dev/null")
    private_files._usable.cache_clear()
    assert private_files.kept_folder("x") is None
    with plans.turn():
        plans.keep("a", Choice("b"))
    assert plans.find("a") is None


class Planted:
    """Unpickling it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@needs_root
def test_planted_code_is_not_run(tmp_path):
    """A stranger fills the shared folder that root names: files of the right names, whole, with code to run."""
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    (tmp_path / "tmp").mkdir()
    show = "import callee; print(callee.grown(5), callee.grown.stats.cache_path)"
    assert said(tmp_path, show)[0] == f"6 {tmp_path}/cache"
    made, = (tmp_path / "cache").iterdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    open_the_way(shared)
    plant = pickle.dumps(Planted(f"touch {tmp_path}/harm"))
    as_a_stranger(lambda: (shared / made.name).write_bytes(hashlib.sha256(plant).digest() + plant))
    assert (shared / made.name).stat().st_uid == STRANGER
    output, errors = said(tmp_path, show, NUMBA_CACHE_DIR=str(shared), TMPDIR=str(tmp_path / "tmp"))
    own = tmp_path / "tmp" / "scaffe-0"
    assert output == f"6 {own}"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert errors.count("\n") == 1
    assert f"NUMBA_CACHE_DIR={shared}: others may write in {shared} (mode 1777)" in errors
    assert not (tmp_path / "harm").exists()
    owned_by_a_stranger(made)  # one file alone, in a folder that is root's
    made.write_bytes((shared / made.name).read_bytes())
    assert said(tmp_path, show)[0] == f"6 {tmp_path}/cache"
    assert not (tmp_path / "harm").exists()


@needs_root
def test_another_user_has_a_folder_of_their_own(tmp_path, monkeypatch):
    """Who can write neither beside the sources nor in a home keeps things all the same, apart from root's."""
    open_the_way(tmp_path)
    monkeypatch.setattr(private_files.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SCAFFE_CACHE", "/proc/none")
    private_files._usable.cache_clear()
    as_a_stranger(lambda: private_files.write(private_files.kept_folder("compiled") / "a", b"theirs"))
    path = tmp_path / f"scaffe-{STRANGER}" / "compiled" / "a"
    assert path.stat().st_uid == STRANGER
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert private_files.read(path) is None
    assert private_files.kept_folder("compiled") == tmp_path / "scaffe-0" / "compiled"


def open_the_way(folder: Path) -> None:
    """Make a test's folder one like /tmp, which others can reach."""
    for above in folder.parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | 0o011)
    folder.chmod(0o1777)


def as_a_stranger(act: Callable[[], object]) -> None:
    """Do something as another user, in a process of its own."""
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def test_choices_of_plans_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path))
    plans.keep("a", Choice("1"))
    (path,) = (tmp_path / plans.FOLDER).iterdir()
    plans.keep("b", Choice("2"))
    assert (plans.find("a"), plans.find("b"), plans.find("c")) == (Choice("1"), Choice("2"), None)
    path.chmod(0o666)
    assert plans.find("a") is None
