"""PyTorch's LBFGS (strong Wolfe) for ``benchmarks/sandblaster.py``: ``lbfgs_torch.py FOLDER N_STEPS N_THREADS``.

The same LeNet from the weights that our side left in FOLDER/weights.npz, over all images as one batch, in the images
file that it left beside. Prints the line of JSON that ``lbfgs_ours.py`` prints.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn


def lenet(weights):
    """Caffe's LeNet with given weights."""
    net = nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
    with torch.no_grad():
        for parameter, array in zip(net.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(array.reshape(parameter.shape)))
    return net


def main():
    """Train, and print what came of it."""
    folder, n_steps, n_threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(n_threads)
    net = lenet(list(np.load(folder / "weights.npz").values()))
    data = np.load(folder / "images.npz")
    images, labels = torch.from_numpy(data["images"]), torch.from_numpy(data["labels"]).long()
    optimiser = torch.optim.LBFGS(net.parameters(), lr=1, max_iter=1, history_size=10, line_search_fn="strong_wolfe",
                                  tolerance_grad=0, tolerance_change=0)
    calls, times, passes = [0], [], []

    def closure():
        calls[0] += 1
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        return loss

    # all steps in one call, which keeps the gradient of an accepted trial; another call would compute it again
    optimiser.param_groups[0]["max_iter"], optimiser.param_groups[0]["max_eval"] = n_steps, 100 * n_steps
    times.append(time.perf_counter())
    optimiser.step(closure)
    times.append(time.perf_counter())
    passes.append(calls[0])
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(net(images), labels))
    print(json.dumps({"loss": loss, "steps": n_steps, "evaluations": passes[0],
                      "seconds_per_pass": (times[1] - times[0]) / passes[0]}))


if __name__ == "__main__":
    main()
