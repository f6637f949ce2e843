"""MNIST archives into LMDB, checked with the lmdb library and a Datum written out by hand."""

import lmdb
import numpy as np
import pytest

from scaffe.cli.commands.convert_records import convert_mnist_data as main
from scaffe.data.records.idx import write_idx
from scaffe.errors import DataError, UsageError
from tests.data.databases import datum, unlike_images

IMAGES, LABELS = unlike_images(1203, (7, 5)), (np.arange(1203) * 7 % 256).astype(np.uint8)


@pytest.fixture
def archives(tmp_path):
    """The two archives' paths."""
    write_idx(tmp_path / "images.gz", IMAGES)
    write_idx(tmp_path / "labels.gz", LABELS)
    return str(tmp_path / "images.gz"), str(tmp_path / "labels.gz")


def test_every_record_is_there_under_its_key(tmp_path, archives):
    assert main([*archives, str(tmp_path / "out")]) == 0
    with lmdb.open(str(tmp_path / "out"), readonly=True) as env, env.begin() as transaction:
        found = list(transaction.cursor())
    expected = [datum(image[None], int(label)) for image, label in zip(IMAGES, LABELS, strict=True)]
    assert found == [(b"%08d" % i, record) for i, record in enumerate(expected)]


def test_an_existing_folder_stays_unless_forced(tmp_path, archives):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "data.mdb").write_text("keep")
    with pytest.raises(DataError, match="exists already"):
        main([*archives, str(tmp_path / "out")])
    assert (tmp_path / "out" / "data.mdb").read_text() == "keep"
    main(["-force", *archives, str(tmp_path / "out")])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["data.mdb", "lock.mdb"]


def test_nothing_is_left_of_a_failure(tmp_path, archives):
    write_idx(tmp_path / "short.gz", LABELS[:-1])
    with pytest.raises(DataError, match="1203 images but .* 1202 labels"):
        main([archives[0], str(tmp_path / "short.gz"), str(tmp_path / "out")])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images.gz", "labels.gz", "short.gz"]


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["a", "b", "c", "d"], ["-no_such_flag", "a", "b", "c"]])
def test_a_wrong_command_line_is_one_line(argv):
    with pytest.raises(UsageError, match="^convert_mnist_data: [^\n]*see scaffe convert_mnist_data -h$"):
        main(argv)
