"""What is trained: the ways, and for each run the solver and the options of ``train``."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nets.prototxt import prototxt

BATCH = 64  # of all workers of ssp together
REPLICA_BATCH = 16  # of each replica of downpour
TEST_BATCH, N_TEST = 100, 10
WARM = 0.1  # of the images, by one replica
MOMENTUM = "momentum: 0.9 base_lr: 0.01"
PLAIN, LOW = "momentum: 0 base_lr: 0.05", "momentum: 0 base_lr: 0.0125"
ADAGRAD = 'type: "AdaGrad" momentum: 0 base_lr: 0.01'


@dataclass(frozen=True)
class Way:
    """How parameters are exchanged.

    Attributes:
        strategy: of ``train``.
        rule: the solver's rule and rate.
        slack: of ``ssp``.
        n_sync: of ``downpour``.
        is_warm: one replica trains alone first.
    """

    strategy: str
    rule: str
    slack: float = 0
    n_sync: int = 1
    is_warm: bool = False


WAYS = {
    "sc-b": Way("sc-b", MOMENTUM), "slack 0": Way("ssp", MOMENTUM), "slack 1": Way("ssp", MOMENTUM, 1),
    "slack 3": Way("ssp", MOMENTUM, 3), "slack inf": Way("ssp", MOMENTUM, math.inf),
    **{f"Downpour {name}{warm}": Way("downpour", rule, is_warm=bool(warm)) for warm in ("", " warm")
       for name, rule in (("SGD", PLAIN), ("SGD low", LOW), ("AdaGrad", ADAGRAD))},
    **{f"n_sync {n}": Way("downpour", LOW, n_sync=n) for n in (1, 5, 20, 100, 300, 600)}}


@dataclass(frozen=True)
class Run:
    """One run, as the ranks get it.

    Attributes:
        net, way, workers, seed, images: what is said in the results.
        warm: iterations of one replica before the others begin.
        alone, together: images of an iteration while one replica trains, and afterwards.
        solver: the solver's text, its net in it.
        options: the options of ``train`` that differ.
    """

    net: str
    way: str
    workers: int
    seed: int
    images: int
    warm: int
    alone: int
    together: int
    solver: str
    options: dict[str, Any]

    def images_after(self, iteration: int) -> int:
        """How many images all workers have seen after so many iterations."""
        return min(iteration, self.warm) * self.alone + max(iteration - self.warm, 0) * self.together


def make_run(net: str, name: str, workers: int, seed: int, images: int, n_tests: int, data: Path) -> dict[str, Any]:
    """One run over about so many images, with tests between, as a dict of ``Run``'s attributes."""
    way = WAYS[name]
    is_weak = way.strategy == "downpour"
    alone = REPLICA_BATCH if is_weak else BATCH
    together = REPLICA_BATCH * workers if is_weak else BATCH
    warm = round(WARM * images / alone) if way.is_warm else 0
    n_iterations = max(warm + (images - warm * alone) // together, 1)
    options: dict[str, Any] = {"strategy": way.strategy, "scal": "weak" if is_weak else "strong", "slack": way.slack}
    if is_weak:
        options |= {"n_sync": way.n_sync, "n_fetch": 1, "n_push": 1, "warm_start": warm}
    solver = (f'{way.rule} lr_policy: "fixed" weight_decay: 0.0005 random_seed: {seed} max_iter: {n_iterations} '
              f'display: 0 test_iter: {N_TEST} test_interval: {max(n_iterations // n_tests, 1)} '
              f'snapshot_after_train: false test_initialization: false net_param {{ {net_text(net, data, alone)} }}')
    return asdict(Run(net, name, workers, seed, images, warm, alone, together, solver, options))


def net_text(name: str, data: Path, batch: int) -> str:
    """The net over databases: the benchmark's text, its input replaced."""
    layers = "".join(
        f'layer {{ name: "{phase}" type: "Data" top: "data" top: "label" include {{ phase: {phase.upper()} }} '
        f'transform_param {{ scale: 0.00390625 }} data_param {{ source: "{data}/{phase}_lmdb" batch_size: {n} '
        "backend: LMDB } }\n" for phase, n in (("train", batch), ("test", TEST_BATCH)))
    body = prototxt(name, batch).split("\n", 2)[2]
    last = re.findall(r'bottom: "(\S+)" bottom: "label"', body)[-1]
    return f"{layers}{body}\n" + (f'layer {{ name: "accuracy" type: "Accuracy" bottom: "{last}" bottom: "label" '
                                  'top: "accuracy" include { phase: TEST } }')
