"""Draw a net's prototxt as SVG or PNG.

With the arguments of Caffe's draw_net.py; Graphviz is not needed.
"""

from __future__ import annotations

from scaffe.atomic_files import refuse_input
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.nets import graph
from scaffe.nets.setup import PHASES

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``draw_net NET PICTURE [--rankdir LR] [--phase ALL] [--display_lrm]``. Returns the exit code."""
    from scaffe.draw import draw_net_to_file

    flags = Flags("draw_net", __doc__ or "")
    flags.argument("net", "the net's prototxt")
    flags.argument("picture", "the file to write: .svg, or .png (needs OpenCV)")
    flags.flag("rankdir", "LR", "which way the net runs", choices=("LR", "RL", "TB", "BT"))
    flags.flag("phase", "ALL", "the layers to draw", choices=("TRAIN", "TEST", "ALL"))
    flags.flag("display_lrm", False, "show the multipliers of learning rates")
    options = flags.parse(argv)
    refuse_input(options.picture, [options.net], UserError)
    net = graph.upgraded(graph.read_net(options.net), options.net)
    print(f"Drawing net to {options.picture}")
    draw_net_to_file(net, options.picture, options.rankdir, PHASES.get(options.phase), options.display_lrm)
    return 0
