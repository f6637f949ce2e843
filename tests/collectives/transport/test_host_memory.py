"""How much memory there is, by what the kernel would write into /proc and /sys."""

import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.transport.host_memory import shortage

GIB = 1 << 30


def machine(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


PLAIN = {"proc/meminfo": "MemTotal: 99 kB\nMemAvailable:    4194304 kB\nSwapFree: 1 kB\n"}
V2 = PLAIN | {"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/memory.stat": "anon 5\n",
              "sys/fs/cgroup/job/memory.max": f"{3 * GIB}\n", "sys/fs/cgroup/job/memory.current": f"{2 * GIB}\n",
              "sys/fs/cgroup/job/memory.stat": f"anon 7\ninactive_file {GIB}\n",
              "sys/fs/cgroup/job/step/memory.max": "max\n", "sys/fs/cgroup/job/step/memory.current": "5\n"}
V1 = PLAIN | {"proc/self/cgroup": "5:cpu:/x\n3:memory,other:/job\n",
              "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GIB}\n",
              "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{GIB // 2}\n",
              "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
              "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n"}


@pytest.mark.parametrize(("files", "most", "who"), [(PLAIN, 4 * GIB, "MemAvailable"), (V2, 2 * GIB, "job leaves"),
                                                    (V1, GIB // 2, "memory/job leaves")])
def test_the_least_of_all_limits_counts(tmp_path, files, most, who):
    root = machine(tmp_path, files)
    assert shortage(most, "it", root) == ""
    line = shortage(most + 1, "2 x 5 bytes", root)
    assert line.startswith("no memory for 2 x 5 bytes: ")
    assert f"{who} leaves" in line or who in line
    assert line.endswith(f" leaves {most} bytes on this node")


def test_where_nothing_can_be_asked_nothing_is_refused(tmp_path):
    assert shortage(1 << 60, "it", tmp_path) == ""


def test_one_rank_cannot_have_more_than_there_is():
    with pytest.raises(CommError, match=r"alloc: no memory for \d+ bytes: .* leaves \d+ bytes on this node"):
        Communicator.single().alloc(1 << 50)
