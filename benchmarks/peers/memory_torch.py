"""PyTorch's training steps with what it has to save memory, in its own interpreter; driven by ``benchmarks/memory.py``.

    python memory_torch.py NET --batch N --precision fp32|tf32|bf16 [--gpu] [--seconds S] [--ways eager,...]

A way is ``eager``; ``checkpoint`` (torch.utils.checkpoint of about the square root of the net's blocks: Chen et al.
2016); ``checkpoint_blocks`` (of each block, whose output is kept: of what lies between two places through which a
single array passes); or ``save_on_cpu`` (torch.autograd.graph.save_on_cpu, page-locked). A line of JSON for each:
images per second, and the most memory that PyTorch had allocated. Weights and images are drawn at random.
"""

import argparse
import json
import resource
import time
from contextlib import nullcontext
from statistics import median

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_nets import ARCHITECTURES, JOINED, module

WARM_STEPS, ROUNDS = 2, 3


def made(net, op):
    """The module of one operation, with random weights."""
    o = op.options
    if op.kind == "conv":
        return nn.Conv2d(o["n_in"], net.channels[op.top], o["kernel"], o["stride"], o["pad"], groups=o["group"],
                         bias=o["bias"])
    if op.kind == "fc":
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(net.channels[op.top]))
    return module(net, op, {})


def blocks(ops):
    """The operations in blocks, each but the last with the blob that alone goes on from it to later ones."""
    found, own = [], []
    for at, op in enumerate(ops):
        own.append(op)
        later = ops[at + 1:]
        written = {"data", *(each.top for each in ops[:at + 1])}
        live = written & {blob for each in later for blob in each.bottoms}
        works_in_place = any(each.kind in ("relu", "dropout", "bn") and live & set(each.bottoms) for each in later[:1])
        if len(live) == 1 and not works_in_place:
            found.append((own, live.pop()))
            own = []
    return [*found, (own, None)] if own else found


def joined(parts, n_parts):
    """Blocks joined to about so many of equal numbers of blocks."""
    step, found = -(-len(parts) // n_parts), []
    for start in range(0, len(parts), step):
        some = parts[start:start + step]
        found.append(([op for ops, _ in some for op in ops], some[-1][1]))
    return found


class Net(nn.Module):
    """The net, computed in segments. Forward gives the weighted sum of the losses."""

    def __init__(self, net):
        super().__init__()
        self.ops = net.ops
        self.parts = nn.ModuleDict({op.name: part for op in net.ops if (part := made(net, op)) is not None})
        self.segments, self.is_checkpointed = [(net.ops, None)], False

    def use(self, way):
        """Compute in the segments of a way."""
        parts = blocks(self.ops)
        n_parts = {"checkpoint": round(len(parts) ** 0.5), "checkpoint_blocks": len(parts)}.get(way)
        self.segments, self.is_checkpointed = joined(parts, n_parts or 1), n_parts is not None

    def forward(self, images, labels):
        x, name, total = images, "data", 0.0
        for ops, passes_on in self.segments:
            if self.is_checkpointed and passes_on is not None:
                x, loss = checkpoint(self.run, ops, name, passes_on, x, labels, use_reentrant=False)
            else:
                x, loss = self.run(ops, name, passes_on, x, labels)
            name, total = passes_on, total + loss
        return total

    def run(self, ops, name, passes_on, x, labels):
        """One segment: what goes on, and the losses in it."""
        blobs, loss = {"label": labels, name: x}, x.new_zeros((), dtype=torch.float32)
        for op in ops:
            values = [blobs[b] for b in op.bottoms]
            value = JOINED[op.kind](values) if op.kind in JOINED else self.parts[op.name](*values)
            if op.kind == "loss":
                loss = loss + op.options["weight"] * value
            blobs[op.top] = value
        return blobs.get(passes_on), loss


def stepper(options, net, images, labels):
    """What runs a step in a way."""
    sgd = torch.optim.SGD(net.parameters(), 1e-4, momentum=0.9, weight_decay=5e-4)
    device = "cuda" if options.gpu else "cpu"

    def step(way):
        saved = torch.autograd.graph.save_on_cpu(pin_memory=options.gpu) if way == "save_on_cpu" else nullcontext()
        sgd.zero_grad(set_to_none=True)
        with saved, torch.autocast(device, torch.bfloat16, enabled=options.precision == "bf16"):
            loss = net(images, labels)
        loss.backward()
        sgd.step()
        return loss

    return step


def timed(options, run, n_steps):
    """Seconds a step."""
    started = time.perf_counter()
    for _ in range(n_steps):
        run()
    if options.gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / n_steps


def measure(options, net, step, way):
    """One way's row."""
    net.use(way)
    if options.gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_STEPS):
        loss = step(way)
    n_steps = max(round(options.seconds / ROUNDS / timed(options, lambda: step(way), 1)), 1)
    seconds = median(timed(options, lambda: step(way), n_steps) for _ in range(ROUNDS))
    on_host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # of the process, in all ways so far
    most = torch.cuda.max_memory_allocated() if options.gpu else on_host
    return {"images_per_second": options.batch / seconds, "milliseconds": seconds * 1e3, "memory_bytes": most,
            "n_segments": len(net.segments), "loss": float(loss.detach()), "torch": torch.__version__}


def main():
    """Measure way after way; one that fails does not stop the next."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=tuple(ARCHITECTURES))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "bf16"))
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--ways", default="eager,checkpoint,checkpoint_blocks,save_on_cpu")
    parser.add_argument("--gpu", action="store_true")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.manual_seed(7)
    architecture, device = ARCHITECTURES[options.net](), "cuda" if options.gpu else "cpu"
    images = torch.randn(options.batch, *architecture.image).to(device, memory_format=torch.channels_last)
    labels = torch.zeros(options.batch, dtype=torch.long, device=device)
    net = Net(architecture).to(device)
    with torch.no_grad():
        net.eval()(images[:1], labels[:1])  # lazy layers get their sizes
    net = net.to(memory_format=torch.channels_last).train()
    step = stepper(options, net, images, labels)
    for way in options.ways.split(","):
        try:
            row = measure(options, net, step, way)
        except Exception as error:  # whatever PyTorch raises, as without memory
            row = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        print(json.dumps({"way": way, **row}), flush=True)


if __name__ == "__main__":
    main()
