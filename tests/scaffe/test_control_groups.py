"""How many cores a control group allows, by what the kernel would write into /proc and /sys."""

import pytest

from scaffe.control_groups import cpu_quota, folders, n_cores
from tests.collectives.transport.test_host_memory import machine

V2 = {"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
      "sys/fs/cgroup/job/cpuset.cpus.effective": "0-3,6\n", "sys/fs/cgroup/job/step/cpuset.cpus": "\n"}
V1 = {"proc/self/cgroup": "5:cpu,cpuacct:/job\n3:cpuset:/job\n0::/\n",
      "sys/fs/cgroup/cpuset/job/cpuset.cpus": "1\n", "sys/fs/cgroup/cpuset/job/cpuset.effective_cpus": "0-1,4-5\n"}


def quotas_v2(*pairs):
    folder = "sys/fs/cgroup/job/step/cpu.max", "sys/fs/cgroup/job/cpu.max"
    return V2 | dict(zip(folder, pairs))


def quotas_v1(quota, period="100000"):
    return V1 | {"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": f"{quota}\n",
                 "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": f"{period}\n",
                 "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(("files", "expected"), [
    ({}, None), (V2, None), (V1, None), (quotas_v2("max 100000\n"), None), (quotas_v2("200000 100000\n"), 2),
    (quotas_v2("max 100000\n", "150000 100000\n"), 2), (quotas_v2("400000 100000\n", "25000 100000\n"), 1),
    (quotas_v2("100001 100000\n"), 2), (quotas_v2("5 0\n"), None), (quotas_v2(""), None), (quotas_v1(-1), None),
    (quotas_v1(300000), 3), (quotas_v1(50000), 1), (quotas_v1(70000, 20000), 4)])
def test_quota(tmp_path, files, expected):
    """The least of all groups' counts, rounded up to whole cores."""
    assert cpu_quota(machine(tmp_path, files)) == expected


@pytest.mark.parametrize(("files", "expected"), [
    ({}, None), (V2, 5), (V1, 4), ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpuset.cpus.effective": "3\n"}, 1),
    ({"proc/self/cgroup": "0::/gone\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-1\n"}, 2)])
def test_cores(tmp_path, files, expected):
    assert n_cores(machine(tmp_path, files)) == expected


def test_the_innermost_group_comes_first(tmp_path):
    mount = tmp_path / "sys/fs/cgroup"
    assert list(folders("cpu", machine(tmp_path, V2))) == [mount / "job/step", mount / "job", mount]
