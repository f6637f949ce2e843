"""Removes, at the start, what a killed launcher has left in the temporary folder.

Open MPI's launchers and daemons keep a folder there, ``ompi.PID`` or ``prted.PID``. The next launcher that gets the
same process id fails where it finds one (openpmix/openpmix#4022).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

NAME = re.compile(r"(?:ompi|prted)\.(\d+)")
ADDRESS = re.compile(r"tcp4://([\d.]+):(\d+)")
ANSWER_SECONDS = 0.2


def remove_left(environment: Mapping[str, str] = os.environ) -> None:
    """Removes the folders of this user's launchers on this machine that no longer run. One rank of a node does so."""
    own, host = environment.get("PMIX_SERVER_TMPDIR", ""), environment.get("PMIX_HOSTNAME", "")
    if not own or not host or environment.get("OMPI_COMM_WORLD_LOCAL_RANK") != "0":
        return
    with suppress(OSError):
        for entry in os.scandir(Path(own).parent):
            if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False) and _is_left(Path(entry), host):
                shutil.rmtree(entry, ignore_errors=True)


def _is_left(folder: Path, host: str) -> bool:
    """Whether a launcher of this host and user made a folder, and neither its process nor its port is there.

    The port counts because a container has its own processes and may share the host's name and folder.
    """
    with suppress(OSError, ValueError):
        words = (folder / f"pmix.{host}.tool").read_text().split()
        pid = int(folder.name.rpartition(".")[2])
        return folder.stat().st_uid == os.geteuid() and words[2:3] == [str(pid)] and not _lives(pid) \
            and not _answers(words[0])
    return False


def _lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _answers(contact: str) -> bool:
    found = ADDRESS.search(contact)
    if found is None:
        return True
    with suppress(OSError), socket.create_connection((found[1], int(found[2])), ANSWER_SECONDS):
        return True
    return False
