"""A disk that does not give a mapped file back ends the process with a line; other memory faults end it as ever."""

import signal
import subprocess
import sys

import pytest

from tests.data.databases import write
from tests.mpirun import mpirun

WHY = "a mapped page could not be read (SIGBUS): the disk failed, or the file was shortened"
PREAMBLE = """
import mmap, os, sys, tempfile
import numpy as np
from scaffe import mapped_files
folder = sys.argv[1]

def mapped():
    file = tempfile.TemporaryFile(dir=folder)
    file.truncate(1 << 20)
    return file, np.frombuffer(mmap.mmap(file.fileno(), 1 << 20), np.uint8)
"""
WATCHED = PREAMBLE + """
for _ in range(3):  # rows of the table are used again
    file, memory = mapped()
    mapped_files.watch(memory, f"folder {folder}", 7)
    del memory
file, memory = mapped()
mapped_files.watch(memory, f"folder {folder}")
other, beside = mapped()
mapped_files.watch(beside, "elsewhere", 3)
part = memory[4096 * 100:][::2]
del memory
file.truncate(4096 * 100)
print(beside.sum(), flush=True)
part.sum()
"""
OTHERS = PREAMBLE + """
file, memory = mapped()
mapped_files.watch(memory, f"folder {folder}")
other, beside = mapped()
other.truncate(0)
print(memory.sum(), flush=True)
beside.sum()
"""
MANY = PREAMBLE + """
kept = [mapped()[1] for _ in range(mapped_files.MOST + 1)]
for memory in kept:
    mapped_files.watch(memory, f"folder {folder}")
del kept, memory
file, memory = mapped()
mapped_files.watch(memory, f"folder {folder}")
file.truncate(0)
memory.sum()
"""
BACKED = """
import os, sys
import numpy as np
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.backing.spill_file import SpillFile
made = FileBackedMemory(SpillFile(sys.argv[1]), 5)
values = made.zeros(1 << 18, np.float32)
values[:] = 1
os.ftruncate(made.file.descriptor, 0)
values.sum()
"""
LMDB = """
import os, sys
from pathlib import Path
from scaffe.data.sources.lmdb import LmdbFile
file = LmdbFile(Path(sys.argv[1]))
os.truncate(Path(sys.argv[1]) / "data.mdb", 8192)
file.bytes.sum()
"""
TABLES = """
import os, sys
from scaffe.collectives import Communicator
from scaffe.collectives.server.memory.common import InFile
world = Communicator.world()
tables = InFile(world, 1 << 20, sys.argv[1])
world.barrier()
if world.rank == 0:
    os.ftruncate(tables._written._descriptor, 0)
world.barrier()
if world.rank == 1:
    tables.memory.sum()
world.barrier()
"""


def ended(code, folder, *options):
    return subprocess.run([sys.executable, *options, "-c", code, folder], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("code", "who", "said"), [(WATCHED, "scaffe", "0\n"), (MANY, "scaffe", ""),
                                                   (BACKED, "rank 5", "")])
def test_a_lost_page_is_one_line(tmp_path, code, who, said):
    found = ended(code, tmp_path)
    line = f"{who}: folder {tmp_path}: {WHY}\n"
    assert (found.returncode, found.stdout, found.stderr) == (1, said, line)


def test_a_database_that_is_shortened_while_it_is_read(tmp_path):
    write(tmp_path / "db", [(b"%d" % i, bytes(1 << 16)) for i in range(9)])
    found = ended(LMDB, tmp_path / "db")
    assert (found.returncode, found.stderr) == (1, f"scaffe: {tmp_path / 'db' / 'data.mdb'}: {WHY}\n")


@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")])
def test_other_memory_is_the_business_of_whoever_had_the_signal_before(tmp_path, options):
    found = ended(OTHERS, tmp_path, *options)
    assert (found.returncode, found.stdout) == (-signal.SIGBUS, "0\n")
    assert ("Fatal Python error: Bus error" in found.stderr) == bool(options) and WHY not in found.stderr


@pytest.mark.mpi_job
def test_a_servers_tables_that_are_lost_end_all_ranks(tmp_path):
    command = [*mpirun(2), sys.executable, "-c", TABLES, tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode != 0
    assert f"rank 1: folder {tmp_path}: {WHY}" in found.stderr
