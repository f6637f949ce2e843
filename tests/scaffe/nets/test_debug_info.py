"""debug_info: the lines that Caffe logs, with the values that the blobs have."""

import re

import numpy as np
import pytest

import scaffe as caffe

NET = """force_backward: true debug_info: %s
layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { lr_mult: 0 }
        inner_product_param { num_output: 2 weight_filler { type: "uniform" min: -1 } } }
layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "t" top: "loss" }"""
FORWARD = ["Layer in, top blob x data", "Layer in, top blob t data", "Layer a, top blob a data",
           "Layer a, param blob w data", "Layer a, param blob 1 data", "Layer r, top blob a data",
           "Layer loss, top blob loss data"]
BACKWARD = ["Layer loss, bottom blob a diff", "Layer loss, bottom blob t diff", "Layer r, bottom blob a diff",
            "Layer a, bottom blob x diff", "Layer a, param blob 0 diff", "Layer a, param blob 1 diff"]
LINE = re.compile(r"^[IE]\d{4} .*\]     \[(\w+)\] (.*?): (.*)$", re.M)


def lines(text):
    """(pass, what, value) of every line of the kind."""
    return LINE.findall(text)


def test_a_net_by_itself(tmp_path, capfd):
    path = tmp_path / "net.prototxt"
    path.write_text(NET % "true")
    net = caffe.Net(str(path), caffe.TRAIN)
    net.blobs["x"].data[...] = [[1, -2, 3], [0, 1, -1]]
    net.blobs["t"].data[...] = [[0.5, 1], [-1, 2]]
    net.forward()
    net.backward()
    found = lines(capfd.readouterr().err)
    assert [what for kind, what, _ in found if kind == "Forward"] == FORWARD
    *backward, (kind, what, totals) = found[len(FORWARD):]
    assert [what for _, what, _ in backward] == BACKWARD
    values = {what: float(value) for _, what, value in found[:-1]}
    w, b = (blob for blob in net.params["a"])
    for name, array in (("Layer in, top blob x data", net.blobs["x"].data), ("Layer a, param blob w data", w.data),
                        ("Layer a, param blob 0 diff", w.diff), ("Layer a, param blob 1 diff", b.diff),
                        ("Layer loss, bottom blob t diff", net.blobs["t"].diff),
                        ("Layer r, top blob a data", net.blobs["a"].data)):
        assert values[name] == pytest.approx(np.abs(array).mean(), rel=1e-5), name
    both = [np.concatenate([blob.data.ravel() for blob in (w, b)]), np.concatenate([x.diff.ravel() for x in (w, b)])]
    l1, l2 = ([np.linalg.norm(array, order) for array in both] for order in (1, 2))
    assert (kind, what) == ("Backward", "All net params (data, diff)")
    numbers = [float(n) for n in re.findall(r"[-\d.e+]+", re.sub(r"L\d", "", totals))]
    assert numbers == pytest.approx([*l1, *l2], rel=1e-4)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_solvers_nets_at_the_iterations_displayed(tmp_path, capfd, wanted):
    (tmp_path / "net.prototxt").write_text(NET % "true")  # the solver's decides
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" display: 2 max_iter: 3 '
                      f'test_iter: 1 test_interval: 100 random_seed: 1 debug_info: {str(wanted).lower()}')
    made = caffe.get_solver(str(solver))
    capfd.readouterr()
    made.step(3)  # one test ahead of them; iterations 0 and 2 are displayed
    found = [what for _, what, _ in lines(capfd.readouterr().err)]
    assert found.count("All net params (data, diff)") == (2 if wanted else 0)
    assert found.count("Layer a, top blob a data") == (3 if wanted else 0)
