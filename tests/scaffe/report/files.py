"""Files that runs leave behind, made up: a log in Caffe's form and a trace of two ranks."""

from __future__ import annotations

import json
from pathlib import Path

NET = """name: "small"
layer { name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param { shape { dim: 8 dim: 20 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "<b>" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
HEAD = "I1122 10:00:{:09.6f} 7 x.py:9] {}\n"


def write_log(path: Path, losses: dict[int, float], accuracies: dict[int, float], n_ranks: int = 2) -> None:
    """A run of 64 images an iteration, whose iteration i ends in second i."""
    lines = [HEAD.format(0, "Settings: base_lr: 0.1 <script>"), HEAD.format(0, "Machine: here, one & all"),
             HEAD.format(0, "Solving small"),
             HEAD.format(0, f"Training on {n_ranks} rank(s), 64 images an iteration")]
    for i, (iteration, loss) in enumerate(losses.items(), 1):
        if iteration in accuracies:
            lines += [HEAD.format(i, f"Iteration {iteration}, Testing net (#0)"),
                      HEAD.format(i, f"    Test net output #0: accuracy = {accuracies[iteration]}")]
        lines += [HEAD.format(i, f"Iteration {iteration} (2.5 iter/s, 4s/10 iters), loss = {loss}"),
                  HEAD.format(i, f"    Train net output #0: loss = {loss} (* 1 = {loss} loss)"),
                  HEAD.format(i, f"Iteration {iteration}, lr = 0.1")]
    lines += [HEAD.format(50, f"Summary: 40 iterations in 50.0 s on {n_ranks} rank(s), 51 images/s; forward 50.0%, "
                              "backward 25.0%, data 12.5%"),
              HEAD.format(50, "Communication: 3.50 s, 57.1% of it hidden behind computing")]
    path.write_text("".join(lines))


def write_trace(path: Path, n_iterations: int = 9) -> None:
    """Two ranks; iteration i of 10 ms starts at 10 i: forward of ip 2 ms, backward 4 ms, update 1 ms at its end."""
    events = [{"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": name}}
              for rank in range(2) for tid, name in enumerate(("main", "layers", "helper"))]
    for rank in range(2):
        for i in range(n_iterations):
            spans = ((0, "forward", 0, 3), (0, "backward", 3, 9), (0, "update", 9, 10), (1, "forward ip", 0, 2),
                     (1, "backward ip", 4, 8), (2, "reduce <b>", 5, 9))
            events += [{"ph": "X", "name": name, "pid": rank, "tid": tid, "ts": (10 * i + start) * 1e3,
                        "dur": (end - start) * 1e3} for tid, name, start, end in spans]
    about = {"net": NET, "multiply_adds": {"ip": [3_000_000, 8_000_000]}}
    path.write_text(json.dumps({"traceEvents": events, "otherData": about}))
