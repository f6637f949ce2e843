"""Records that cannot be read: a line that names key or file, or -skip-bad-records N, on any number of ranks."""

import re

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.data.convert.writers import write_lmdb
from scaffe.data.records.datum import encode_image
from tests.scaffe.runs import run, write_solver

HEAD = """layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4
        weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" } """
RECORDS = """layer { name: "d" type: "Data" top: "data" top: "label" transform_param { scale: 0.004 }
        data_param { source: "db" batch_size: 4 backend: LMDB } } """ + HEAD
FILES = """layer { name: "d" type: "ImageData" top: "data" top: "label" transform_param { scale: 0.004 }
        image_data_param { source: "list.txt" batch_size: 4 shuffle: true } } """ + HEAD
N_RECORDS, N_BAD = 24, 3


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def images(n_images, shape):
    return np.random.default_rng(1).integers(0, 256, (n_images, *shape), np.uint8)


@pytest.fixture
def records(tmp_path):
    """A database whose record 5 is cut short, 10 is junk and 15 has another shape."""
    values = [encode_image(image, i % 4) for i, image in enumerate(images(N_RECORDS, (3, 6, 6)))]
    values[5], values[10] = values[5][:-9], b"\xffjunk"
    values[15] = encode_image(images(1, (3, 6, 5))[0], 0)
    write_lmdb(tmp_path / "db", [(b"%08d" % i, value) for i, value in enumerate(values)])
    write_solver(tmp_path, RECORDS, test_iter=None, test_interval=0, max_iter=20)


@pytest.fixture
def files(tmp_path):
    """Image files of which one is cut short, one is missing and one has another shape."""
    cv2 = pytest.importorskip("cv2")
    for i, image in enumerate(images(N_RECORDS, (6, 6, 3))):
        cv2.imwrite(f"{i}.jpg", image[:, :5] if i == 15 else image)
    whole = (tmp_path / "5.jpg").read_bytes()
    (tmp_path / "5.jpg").write_bytes(whole[:len(whole) // 2])
    (tmp_path / "10.jpg").unlink()
    (tmp_path / "list.txt").write_text("".join(f"{i}.jpg {i % 4}\n" for i in range(N_RECORDS)))
    write_solver(tmp_path, FILES, test_iter=None, test_interval=0, max_iter=20)


BAD = {"records": ["record '00000005'", "record '00000010'", "record '00000015'"],
       "files": ["5.jpg: not an image", "10.jpg: No such file", "15.jpg is 3 x 6 x 5"]}


def lines(text, start):
    return [line for line in text.splitlines() if start in line]


@pytest.fixture
def said(tmp_path, capfd):
    """Runs a command, on one rank in this process. Gives its code and what it wrote on standard error."""
    def ask(*args, n_ranks=1):
        if n_ranks > 1:
            done = run(tmp_path, *args, n_ranks=n_ranks, timeout=60)
            return done.returncode, done.stderr
        capfd.readouterr()
        return cli.main([*args, "-threads", "1"]), capfd.readouterr().err

    return ask


TRAIN = ("train", "-solver", "solver.prototxt")


@pytest.mark.parametrize("kind", list(BAD))
def test_without_the_flag_one_line_names_it(kind, request, said):
    request.getfixturevalue(kind)
    code, err = said(*TRAIN)
    assert code == 1
    last, = lines(err, "scaffe: ")
    assert any(bad in last for bad in BAD[kind])


@pytest.mark.mpi_job
@pytest.mark.parametrize(("kind", "n_ranks"), [
    ("records", 1), ("records", 2), ("files", 1), pytest.param("files", 2, marks=pytest.mark.thorough)])
def test_bad_records_are_counted_over_all_ranks(kind, n_ranks, request, said):
    request.getfixturevalue(kind)
    code, err = said(*TRAIN, "-skip-bad-records", str(N_BAD), n_ranks=n_ranks)
    assert code == 0, err
    told = lines(err, " passed over: ")
    assert [int(re.search(r"Bad record (\d+) of at most 3", line)[1]) for line in told] == [1, 2, 3]
    for bad in BAD[kind]:
        assert len(lines("\n".join(told), bad)) == 1
    assert lines(err, "Summary: 3 bad records were passed over")
    assert len(lines(err, ", loss = ")) >= 20


@pytest.mark.mpi_job
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_one_too_many_ends_all_ranks(records, said, n_ranks):
    code, err = said(*TRAIN, "-skip-bad-records", "2", n_ranks=n_ranks)
    assert code == 1
    last, = lines(err, "3 records are bad, at most 2 may be")
    assert "record '000000" in last
    assert "Traceback" not in err


@pytest.mark.mpi_job
def test_scoring_passes_over_bad_records_too(records, tmp_path, said):
    write_solver(tmp_path, RECORDS, test_iter=None, test_interval=0, max_iter=1, display=0, snapshot_after_train=1)
    assert said(*TRAIN)[0] == 0
    score = ["test", "-model", "net.prototxt", "-weights", "run_iter_1.caffemodel", "-iterations", "6"]
    code, err = said(*score, "-skip_bad_records=3", n_ranks=2)
    assert code == 0, err
    assert len(lines(err, " passed over: ")) == N_BAD
    code, err = said(*score)
    assert code == 1
    assert "record '00000005'" in lines(err, "scaffe: ")[0]


def test_the_number_is_a_number(capfd):
    assert cli.main(["train", "-solver", "s", "-skip-bad-records", "-1"]) == 2
    assert "-skip_bad_records must be a whole number from 0 to 2^31-1, got '-1'" in capfd.readouterr().err
