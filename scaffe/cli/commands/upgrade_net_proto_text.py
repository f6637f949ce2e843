"""A net's prototxt of any age in today's form."""

from __future__ import annotations

from scaffe.cli.upgrade_text import upgrade_text
from scaffe.nets import graph

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``upgrade_net_proto_text OLD NEW``. Returns the exit code."""
    return upgrade_text("upgrade_net_proto_text", __doc__ or "", graph.read_net, argv)
