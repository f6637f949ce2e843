"""-partitions on one rank: nothing to share, and a number of partitions that cannot be had is refused."""

import pytest

from scaffe.cli.main import main
from tests.scaffe.runs import write_solver

NET = """layer { name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param { shape { dim: 4 dim: 6 }
  shape { dim: 4 } data_filler { type: "constant" value: 1 } data_filler { type: "constant" } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


@pytest.mark.parametrize(("partitions", "code"), [("1", 0), ("auto", 0), ("2", 1)])
def test_one_rank(tmp_path, monkeypatch, capsys, partitions, code):
    write_solver(tmp_path, NET, test_iter=None, test_interval=None, max_iter=2)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-solver", "solver.prototxt", "-threads", "1", "-partitions", partitions]) == code
    assert ("-partitions 2 does not divide 1 ranks" in capsys.readouterr().err) == bool(code)
