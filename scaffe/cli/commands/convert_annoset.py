"""Images and the objects in them into a database.

With the arguments of convert_annoset of SSD's fork of Caffe.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.cli.image_flags import SIDE, LeftOut, add_image_flags, image_options
from scaffe.data.convert.annoset import AnnosetOptions, convert_annoset
from scaffe.data.convert.annotations import READERS, read_label_map
from scaffe.errors import UsageError
from scaffe.flags import Flags

GROUP = "Data"
KINDS = ("classification", "detection")


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    args = _flags().parse(argv)
    detection = args.anno_type == "detection"
    if detection and not args.label_map_file:
        raise UsageError("-anno_type detection wants -label_map_file")
    labels = read_label_map(args.label_map_file, args.check_label) if detection else {}
    left_out = LeftOut()
    options = AnnosetOptions(image_options(args, left_out), detection, args.label_type, labels, args.min_dim,
                             args.max_dim)
    n_records = convert_annoset(args.ROOTFOLDER, args.LISTFILE, args.DB_NAME, options, args.force, args.backend)
    print(f"Processed {n_records} files.")
    left_out.say()
    return 0


def _flags() -> Flags:
    flags = Flags("convert_annoset", __doc__ or "")
    flags.flag("anno_type", "classification", "what the list's second column is: labels or files of annotations",
               choices=KINDS)
    flags.flag("label_type", "xml", "the kind of those files", choices=tuple(READERS))
    flags.flag("label_map_file", "", "a LabelMap prototxt: the labels of the classes' names", metavar="FILE")
    flags.flag("check_label", False, "refuse a label map with a name twice")
    flags.flag("min_dim", 0, "enlarge smaller images until their shorter side has so many pixels", kind=SIDE)
    flags.flag("max_dim", 0, "shrink larger images until their longer side has at most so many pixels",
               kind=SIDE)
    add_image_flags(flags, "'image annotations' or 'image label'")
    return flags
