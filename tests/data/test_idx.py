"""IDX files read and written; damage is one clear line."""

import gzip

import numpy as np
import pytest

from scaffe.data.records.idx import read_idx, write_idx
from scaffe.errors import DataError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
CONTENT = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + IMAGES.tobytes()


@pytest.mark.parametrize("content", [CONTENT, gzip.compress(CONTENT)], ids=["plain", "gzipped"])
def test_reads_whatever_the_name(tmp_path, content):
    (tmp_path / "images").write_bytes(content)
    np.testing.assert_array_equal(read_idx(tmp_path / "images", 3), IMAGES)


def test_writes_the_format(tmp_path):
    write_idx(tmp_path / "plain", IMAGES)
    write_idx(tmp_path / "packed.gz", IMAGES)
    assert (tmp_path / "plain").read_bytes() == CONTENT
    assert gzip.decompress((tmp_path / "packed.gz").read_bytes()) == CONTENT


def test_the_same_array_gives_the_same_gzip_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_idx(tmp_path / name, IMAGES)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(("content", "message"), [
    (b"", "found only 0 bytes"),
    (b"\0\0\x08\x01" + CONTENT[4:], "expected IDX magic number 2051, found 2049"),
    (CONTENT[:-1], "2x3x4 bytes expected after the header, found 23"),
    (CONTENT + b"x", "2x3x4 bytes expected after the header, found 25"),
    (gzip.compress(CONTENT, mtime=0)[:-9], "damaged gzip file"),
    (gzip.compress(CONTENT, mtime=0)[:14] + b"\xff\xff\xff\xff" + gzip.compress(CONTENT, mtime=0)[18:],
     "damaged gzip file"),
])
def test_damage_is_told(tmp_path, content, message):
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(tmp_path / "images", 3)
    assert str(tmp_path / "images") in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_idx(tmp_path / "absent", 3)
