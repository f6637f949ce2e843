"""PyTorch's training step on a GPU, in its own interpreter; driven by ``benchmarks/gpu.py``.

    python torch_gpu.py NET FILE.npz PRECISION SECONDS [eager|compile|reduce-overhead ...]

channels_last, cudnn.benchmark and fused SGD. FILE holds batch and weights. A line of JSON for each way: images per
second, milliseconds a step, the loss on that batch with the weights of the file (without dropout), memory; or "error".
"""

import json
import sys
import time
from statistics import median

import numpy as np
import torch
from torch_nets import ARCHITECTURES, Net

ROUNDS, WARM_STEPS = 5, 8


def make(name, files):
    """The net, images and labels on the GPU."""
    net = Net(name, files).cuda().to(memory_format=torch.channels_last)
    images = torch.from_numpy(files["data"]).cuda().to(memory_format=torch.channels_last)
    return net, images, torch.from_numpy(files["label"]).cuda()


def measure(name, files, precision, seconds, how):
    """One way's row."""
    net, images, labels = make(name, files)
    sgd = torch.optim.SGD(net.parameters(), 1e-4, momentum=0.9, weight_decay=5e-4, fused=True)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    draws = any(op.kind == "dropout" for op in ARCHITECTURES[name]().ops)

    def loss_of(model):
        with torch.autocast("cuda", half, enabled=half is not None):
            return model(images, labels)

    with torch.no_grad():
        first = float(loss_of(net.train(not draws)))
    net.train()
    model = {"eager": lambda: net, "compile": lambda: torch.compile(net),
             "reduce-overhead": lambda: torch.compile(net, mode="reduce-overhead")}[how]()

    def step():
        sgd.zero_grad(set_to_none=True)
        scaler.scale(loss_of(model)).backward()
        scaler.step(sgd)
        scaler.update()

    for _ in range(WARM_STEPS):
        step()
    n_steps, found = max(round(seconds / ROUNDS / run(step, 2)), 1), []
    for _ in range(ROUNDS):
        found.append(run(step, n_steps))
    return {"way": how, "images_per_second": len(labels) / median(found), "milliseconds": median(found) * 1e3,
            "loss": first, "memory_bytes": torch.cuda.max_memory_allocated(), "torch": torch.__version__}


def run(step, n_steps):
    """Seconds a step."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(n_steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / n_steps


def main(name, path, precision, seconds, *ways):
    """Measure way after way; one that fails does not stop the next."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    files = dict(np.load(path))
    for how in ways or ("eager", "compile", "reduce-overhead"):
        try:
            row = measure(name, files, precision, float(seconds), how)
        except Exception as error:  # whatever PyTorch or its compiler raises
            row = {"way": how, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
