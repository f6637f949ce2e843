"""Listed images into a database.

With the arguments of Caffe's convert_imageset.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.cli.image_flags import LeftOut, add_image_flags, image_options
from scaffe.data.convert.imageset import convert_imageset
from scaffe.flags import Flags

GROUP = "Data"


def main(argv: Sequence[str]) -> int:
    """Run the tool on its arguments (without the program's name). Raises DataError for a user's mistake."""
    flags = Flags("convert_imageset", __doc__ or "")
    add_image_flags(flags, "'path label'")
    args = flags.parse(argv)
    left_out = LeftOut()
    n_records = convert_imageset(args.ROOTFOLDER, args.LISTFILE, args.DB_NAME, image_options(args, left_out),
                                 args.force, args.backend)
    print(f"Processed {n_records} files.")
    left_out.say()
    return 0
