"""A machine as the cost model sees it: links, sums and overheads, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from scaffe.collectives.errors import CommError


@dataclass(frozen=True, slots=True)
class Machine:
    """Constants of the cost model.

    A message between ranks of one node passes the ports of both ranks. One between nodes passes a network port of
    both nodes; a node's ranks take its ports in turn and share them where there are fewer. Each port works in both
    directions at once.

    Attributes:
        intra_latency: of a message within a node, seconds.
        intra_bandwidth: of a rank's port, bytes per second.
        inter_latency: of a message between nodes, seconds.
        inter_bandwidth: of a network port, bytes per second.
        overhead: what a rank spends on sending or receiving one message, seconds.
        sum_overhead: what a rank spends on one sum, whatever its length, seconds.
        sum_bandwidth: at which received bytes are added, bytes per second.
        ports: network ports of a node.
        pass_overhead: of a pass in which a node's ranks work on one another's memory, seconds.
    """

    intra_latency: float
    intra_bandwidth: float
    inter_latency: float
    inter_bandwidth: float
    overhead: float
    sum_overhead: float
    sum_bandwidth: float
    ports: int = 1
    pass_overhead: float = 0

    def __post_init__(self) -> None:
        """Raises CommError on a negative time, or a bandwidth or number of ports that is not above 0."""
        for constant in fields(self):
            value = getattr(self, constant.name)
            if value < 0 or (value == 0 and constant.name.endswith(("bandwidth", "ports"))):
                raise CommError(f"machine: {constant.name} must be {'above 0' if value == 0 else '0 or more'}, "
                                f"not {value:g}")


GPU_CLUSTER_2016 = Machine(intra_latency=15e-6, intra_bandwidth=9e9, inter_latency=8e-6, inter_bandwidth=6e9,
                           overhead=3e-6, sum_overhead=12e-6, sum_bandwidth=60e9, pass_overhead=50e-6)
"""Assumed, not measured: nodes of NVIDIA K80 GPUs on PCI Express 3.0 x16 (15.75 GB/s raw, about 9 between GPUs of a
node), one FDR InfiniBand port (56 Gbit/s signalled, 54.5 data, 6.8 GB/s raw, about 6 to GPU memory); about 12 us to
launch and await a kernel; sums at a quarter of a K80 GPU's 240 GB/s (two reads and a write per element); 50 us
for a pass (two meetings of host threads, events, a kernel)."""

GPU_CLUSTER_2023 = Machine(intra_latency=3e-6, intra_bandwidth=350e9, inter_latency=5e-6, inter_bandwidth=46e9,
                           overhead=20e-6, sum_overhead=5e-6, sum_bandwidth=1000e9, ports=8, pass_overhead=50e-6)
"""Assumed, not measured: nodes of 8 NVIDIA H100 GPUs (DGX H100's data sheet): NVLink 450 GB/s each way, about 350 to a
kernel; one port of 400 Gbit/s for each GPU, about 46 GB/s; a message costs its rank 20 us of launches, events and
Python; sums at a third of 3.35 TB/s."""

EMULATED_1_GBIT = Machine(intra_latency=2e-6, intra_bandwidth=4e9, inter_latency=15e-6, inter_bandwidth=0.1195e9,
                          overhead=20e-6, sum_overhead=1e-6, sum_bandwidth=8e9)
"""Nodes emulated on one machine, links shaped to 1 Gbit/s (less 4.4 % of Ethernet, IP and TCP headers)."""
