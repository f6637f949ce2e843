"""Small files made to break readers, written without our own code."""

import os
import struct

PAGE = 4096


def ladder_lmdb(n_steps=20, n_ways=100):
    """The data.mdb of a database with n_ways ** n_steps ways from the root to an empty leaf."""
    def header(number, flags, lower, upper):
        return struct.pack("<QHHHH", number, 0, flags, lower, upper)

    def meta(number):
        tree = struct.pack("<IHHQQQQQ", PAGE, 0, n_steps + 1, n_steps, 1, 0, 5, 2)
        free = struct.pack("<IHHQQQQQ", PAGE, 0, 0, 0, 0, 0, 0, (1 << 64) - 1)
        return header(number, 8, 0, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 20) + free + tree \
            + struct.pack("<QQ", n_steps + 2, number)

    pages = [meta(0), meta(1)]
    for step in range(n_steps):
        lower, node = 16 + 2 * n_ways, 16 + 2 * n_ways
        child = step + 3
        page = header(step + 2, 1, lower, node) + struct.pack(f"<{n_ways}H", *[node] * n_ways)
        pages.append(page + struct.pack("<HHHH", child & 0xFFFF, child >> 16, 0, 0))
    pages.append(header(n_steps + 2, 2, 16, PAGE))
    return b"".join(page.ljust(PAGE, b"\0") for page in pages)


def not_files(folder):
    """A named pipe without a writer and a device that never ends."""
    os.mkfifo(folder / "pipe")
    return [str(folder / "pipe"), "/dev/zero"]
