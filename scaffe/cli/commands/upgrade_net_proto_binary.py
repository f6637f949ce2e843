"""A .caffemodel of any age in today's form."""

from __future__ import annotations

from scaffe.files import upgrade_model
from scaffe.flags import Flags

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``upgrade_net_proto_binary OLD NEW``. Returns the exit code."""
    flags = Flags("upgrade_net_proto_binary", __doc__ or "")
    flags.argument("old", "a .caffemodel")
    flags.argument("new", "the file to write")
    options = flags.parse(argv)
    if not upgrade_model(options.old, options.new):
        print(f"{options.old} is in today's form already")
    print(f"Wrote upgraded NetParameter binary proto to {options.new}")
    return 0
