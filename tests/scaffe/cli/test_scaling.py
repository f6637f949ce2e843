"""The table of strong and weak scaling, from logs written by hand."""

import json

import pytest

from scaffe.cli import main as cli

LOG = """I1121 09:06:30.1 1 progress.py:31] Training on {ranks} rank(s), {images} images an iteration
I1121 09:06:30.2 1 display.py:30] Iteration 0 (1 iter/s, 0.01s/10 iters), loss = 2.3
I1121 09:06:30.3 1 display.py:30] Iteration 10 (3 iter/s, 3s/10 iters), loss = 2.3
{paces}
I1121 09:06:46.7 1 progress.py:59] Summary: 50 iterations in 16.6 s on {ranks} rank(s), 134 images/s; forward 80.5%
"""


def write_log(folder, name, n_ranks, images, paces):
    lines = "\n".join(f"I1121 09:06:31 1 display.py:30] Iteration {20 + 10 * i} ({pace} iter/s, 1s/10 iters), loss = 1"
                      for i, pace in enumerate(paces))
    (folder / name).write_text(LOG.format(ranks=n_ranks, images=images, paces=lines))
    return str(folder / name)


def test_table_json_and_picture(tmp_path, capsys):
    strong = [write_log(tmp_path, "s4", 4, 64, [30, 1000, 20]), write_log(tmp_path, "s1", 1, 64, [10, 9, 11])]
    weak = [write_log(tmp_path, "w2", 2, 128, [8]), write_log(tmp_path, "w1", 1, 64, [10])]
    code = cli.main(["scaling", "-strong", ",".join(strong), "-weak", ",".join(weak), "-json", str(tmp_path / "t.json"),
                     "-plot", str(tmp_path / "t.svg")])
    assert code == 0
    rows = json.loads((tmp_path / "t.json").read_text())
    found = [(r["scaling"], r["n_ranks"], r["images_per_second"], r["speedup"], r["efficiency"]) for r in rows]
    assert found == [("strong", 1, 640, 1, 1), ("strong", 4, 1920, 3, 0.75), ("weak", 1, 640, 1, 1),
                     ("weak", 2, 1024, pytest.approx(1.6), pytest.approx(0.8))]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["strong", "1"], ["strong", "4"], ["weak", "1"], ["weak", "2"]]
    picture = (tmp_path / "t.svg").read_text()
    assert picture.count("<polyline") == 4
    assert ">ranks<" in picture


@pytest.mark.parametrize(("change", "said"), [
    (("Summary", "Sumry"), "not the log of a training run that came to its end"),
    (("Iteration 20", "iteration 20"), "needs more than 2 displays")])
def test_logs_that_will_not_do(tmp_path, capsys, change, said):
    path = write_log(tmp_path, "log", 1, 64, [10])
    (tmp_path / "log").write_text((tmp_path / "log").read_text().replace(*change))
    assert cli.main(["scaling", "-strong", path]) == 1
    assert said in capsys.readouterr().err


def test_two_runs_on_as_many_ranks(tmp_path, capsys):
    logs = [write_log(tmp_path, name, 2, 64, [10]) for name in ("a", "b")]
    assert cli.main(["scaling", "-strong", ",".join(logs)]) == 1
    assert "several logs" in capsys.readouterr().err


@pytest.mark.parametrize(("ranks", "images", "paces"), [
    ("0", 64, [1]), (2, "0", [1]), (2, 64, [0]), (2, 64, ["."]), (2, 64, ["1e308"]), (2, 64, ["1e-320"]),
    ("9" * 5000, 64, [1])])
def test_numbers_that_no_run_has_are_one_line(tmp_path, capsys, ranks, images, paces):
    path = write_log(tmp_path, "a", ranks, images, paces)
    assert cli.main(["scaling", "-strong", path, "-plot", str(tmp_path / "t.svg")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert path in line
