"""Multinomial logistic regression on a parameter server: ``mpirun -np 4 python examples/logistic_regression.py``."""

from pathlib import Path

import numpy as np

from scaffe.collectives import Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.data.records.idx import read_idx

IMAGES, N_CLASSES, BATCH, RATE = Path(__file__).parent / "fashion_mnist", 10, 50, 0.05


def load(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Images as rows of 784 numbers from 0 to 1, and their classes."""
    pixels = read_idx(IMAGES / f"{kind}-images-idx3-ubyte.gz", 3).reshape(-1, 784)
    return pixels / np.float32(255), read_idx(IMAGES / f"{kind}-labels-idx1-ubyte.gz", 1)


ranks = Communicator.world()
images, labels = (array[ranks.rank :: ranks.n_ranks] for array in load("train"))
server = ParameterServer(ranks, slack=1)
weights, biases = server.table("weights", N_CLASSES, 784), server.table("biases", 1, N_CLASSES)
w, b = server.batch(weights, range(N_CLASSES)), server.batch(biases, [0])
server.start()
for start in list(range(0, len(images) - BATCH + 1, BATCH)) * 10:
    x, y = images[start : start + BATCH], labels[start : start + BATCH]
    scores = x @ w.read().T + b.read()
    w.post_read(), b.post_read()
    errors = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(BATCH), y] -= 1
    w.pre_update()[:] = -RATE / BATCH * (errors.T @ x)
    w.update()
    b.pre_update()[:] = -RATE / BATCH * errors.sum(axis=0)
    b.update()
    server.clock()
server.close()
if ranks.rank == 0:
    images, labels = load("t10k")
    best = (images @ server.values(weights).T + server.values(biases)).argmax(axis=1)
    print(f"accuracy {np.mean(best == labels):.3f}, reads {np.mean(server.staleness):.2f} iterations old")
