"""How the GPUs of a job's ranks are joined, as a description that rules go by (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ONE_CARD, NVLINK, PCI_EXPRESS, HOST = "one card", "NVLink", "PCI Express", "host memory"
WORST_FIRST = (HOST, PCI_EXPRESS, NVLINK, ONE_CARD)


@dataclass(frozen=True)
class Links:
    """The links of a job's GPUs.

    Attributes:
        within: what joins the cards of a node's ranks: ONE_CARD (all ranks share it), NVLINK, PCI_EXPRESS (peers map
            one another's memory over it) or HOST (they cannot); the worst of any two.
        n_ports: active network ports of a node, of the node that has fewest; 0 where they could not be counted.
    """

    within: str = HOST
    n_ports: int = 0

    @classmethod
    def worst(cls, all_links: Sequence[Links]) -> Links:
        """Joins what every rank has found."""
        return cls(min((links.within for links in all_links), key=WORST_FIRST.index),
                   min(links.n_ports for links in all_links))

    def __str__(self) -> str:
        ports = f", {self.n_ports} network port{'s' * (self.n_ports > 1)} a node" if self.n_ports else ""
        return f"GPUs joined by {self.within}{ports}"
