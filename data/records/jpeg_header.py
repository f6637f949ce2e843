"""Reads the header of a JPEG file as far as it tells whether libjpeg-turbo alone decodes it (ITU T.81, annex B)."""

from __future__ import annotations

import numpy as np

SOI, SOF0, SOS, EOI, APP1, APP14 = 0xD8, 0xC0, 0xDA, 0xD9, 0xE1, 0xEE
STUFFED, RST0, RST7, TEM = 0xFF, 0xD0, 0xD7, 0x01
ORIENTATION, UPRIGHT, ENTRY_BYTES = 0x0112, 1, 12  # of EXIF's first directory (CIPA DC-008, 4.6)
NONE = (0, 0)
ADOBE_YCC = 1  # the colour transform of Adobe's marker


def _word(file: memoryview, at: int, big: bool) -> int:
    """The two bytes at ``at`` as a number."""
    first, second = file[at], file[at + 1]
    return first << 8 | second if big else second << 8 | first


def _is_upright(file: memoryview, at: int, end: int) -> bool:
    """Whether the EXIF data in file[at:end], from its byte order on, asks for no rotation."""
    if end - at < 8:
        return False
    big = file[at] == 0x4D
    offset = _word(file, at + (6 if big else 4), big)  # of the first directory; above 64 KB is not in this marker
    if _word(file, at + (4 if big else 6), big) or offset + 2 > end - at:
        return False
    n_entries, entry = _word(file, at + offset, big), at + offset + 2
    if entry + n_entries * ENTRY_BYTES > end:
        return False
    for _ in range(n_entries):
        if _word(file, entry, big) == ORIENTATION and _word(file, entry + 8, big) != UPRIGHT:
            return False
        entry += ENTRY_BYTES
    return True


def _frame_size(file: memoryview, at: int, end: int) -> tuple[int, int]:
    """Height and width from a frame header of three components of 8 bits, sampled 4:4:4, 4:2:2 or 4:2:0; or 0, 0."""
    if end - at < 15 or file[at] != 8 or file[at + 5] != 3:
        return NONE
    for k in range(3):
        sampling = file[at + 7 + 3 * k]
        if file[at + 6 + 3 * k] != k + 1 or sampling != 0x11 and (k or sampling != 0x21 and sampling != 0x22):
            return NONE
    return _word(file, at + 1, True), _word(file, at + 3, True)


def plain_size(content: np.ndarray) -> tuple[int, int]:
    """Height and width of a plain JPEG file: baseline, YCbCr of 8 bits, upright.

    Args:
        content: uint8, 1-D, the file's bytes.

    Returns:
        Both in pixels; (0, 0) for any other file.
    """
    file = content.data
    at, end = 2, len(file)
    if end < 4 or file[0] != 0xFF or file[1] != SOI:
        return NONE
    while at + 4 <= end and file[at] == 0xFF:
        marker = file[at + 1]
        if marker == STUFFED:
            at += 1
            continue
        if marker in (SOS, EOI, TEM) or RST0 <= marker <= RST7:
            return NONE
        start, stop = at + 4, at + 2 + _word(file, at + 2, True)
        if stop < start or stop > end:
            return NONE
        if marker == SOF0:
            return _frame_size(file, start, stop)
        if 0xC0 <= marker <= 0xCF and marker != 0xC4:  # another frame, or arithmetic coding; C4: Huffman tables
            return NONE
        is_exif = marker == APP1 and stop - start >= 6 and file[start] == 0x45 and file[start + 1] == 0x78  # "Exif"
        if is_exif and not _is_upright(file, start + 6, stop):
            return NONE
        if marker == APP14 and (stop - start < 12 or file[start + 11] != ADOBE_YCC):
            return NONE
        at = stop
    return NONE
