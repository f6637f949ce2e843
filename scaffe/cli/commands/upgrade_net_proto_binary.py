"""Write a trained net (.caffemodel) of whatever generation in today's form."""

from __future__ import annotations

from scaffe.cli.flags import Flags
from scaffe.files import upgrade_model


def main(argv: list[str]) -> int:
    """``upgrade_net_proto_binary OLD NEW``. Returns the exit code."""
    flags = Flags("upgrade_net_proto_binary", __doc__ or "")
    flags.add_argument("old", help="a .caffemodel")
    flags.add_argument("new", help="the file to write")
    options = flags.parse_args(argv)
    if not upgrade_model(options.old, options.new):
        print(f"{options.old} is in today's form already")
    print(f"Wrote upgraded NetParameter binary proto to {options.new}")
    return 0
