"""Which ranks cannot use NCCL, and why."""


import pytest

from scaffe.collectives.cuda import nccl


@pytest.mark.parametrize(("everyone", "fault"), [
    ([("a", "1", ""), ("a", "2", ""), ("b", "1", "")], ""),
    ([("a", "1", ""), ("b", "1", ""), ("a", "1", "")], "refuses two ranks on one GPU; ranks 0 and 2 share 1 of a"),
    ([("a", "1", ""), ("a", "2", "no libnccl")], "rank 1: no libnccl"),
    ([("a", "", ""), ("a", "", ""), ("b", "1", "")], ""),  # NCCL is asked to share GPUs
])
def test_who_cannot_use_nccl(everyone, fault):
    found = nccl.fault_of(everyone)
    assert fault in found
    assert bool(found) == bool(fault)
