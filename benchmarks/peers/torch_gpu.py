"""PyTorch's training step on a GPU, in its own interpreter; driven by ``benchmarks/gpu.py``.

    python torch_gpu.py NET FILE.npz PRECISION SECONDS [eager|compile|reduce-overhead|max-autotune ...]
    python torch_gpu.py NET FILE.npz PRECISION SECONDS inference-eager|inference-compile|tensorrt ...

With 0 SECONDS a way is compiled and run once, so that Inductor has it on disk. Inference is a forward pass in eval, its
loss included; TensorRT builds its engine from PyTorch's ONNX. channels_last, cudnn.benchmark and fused SGD. FILE holds
batch and weights. A line of JSON for each way: images per second, milliseconds a step, the loss on that batch with the
weights of the file (without dropout), memory; or "error".
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
    model = compiled(net, how)

    def step():
        sgd.zero_grad(set_to_none=True)
        scaler.scale(loss_of(model)).backward()
        scaler.step(sgd)
        scaler.update()

    return row_of(how, step, seconds, len(labels), first)


def compiled(net, how):
    """The net as a way runs it."""
    if how.endswith("eager"):
        return net
    return torch.compile(net, mode=None if how.endswith("compile") else how)


def row_of(how, step, seconds, n_images, loss):
    """What is printed of a way, whose step is run for so long."""
    for _ in range(WARM_STEPS if seconds else 1):
        step()
    n_steps, found = max(round(seconds / ROUNDS / run(step, 2 if seconds else 1)), 1), []
    for _ in range(ROUNDS if seconds else 1):
        found.append(run(step, n_steps))
    return {"way": how, "images_per_second": n_images / median(found), "milliseconds": median(found) * 1e3,
            "loss": loss, "memory_bytes": torch.cuda.max_memory_allocated(), "torch": torch.__version__}


def infer(name, files, precision, seconds, how):
    """One way's row of forward passes; without autocast, as inference in a half type is run."""
    net, images, labels = make(name, files)
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    net, images = net.eval().to(kind), images.to(kind)
    model = tensorrt_engine(net, images, labels) if how == "tensorrt" else compiled(net, how)
    with torch.inference_mode():
        loss = float(model(images, labels))
        return row_of(how, lambda: model(images, labels), seconds, len(labels), loss)


def tensorrt_engine(net, images, labels):
    """The net by TensorRT, strongly typed, on PyTorch's current stream. Raises ImportError without its wheel."""
    import io

    import tensorrt

    file, logger = io.BytesIO(), tensorrt.Logger(tensorrt.Logger.ERROR)
    torch.onnx.export(net, (images, labels), file, input_names=["images", "labels"], output_names=["loss"],
                      dynamo=False)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse(file.getvalue()):
        raise RuntimeError(f"TensorRT's parser: {parser.get_error(0)}")
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(
        builder.build_serialized_network(network, builder.create_builder_config()))
    context, loss = engine.create_execution_context(), torch.zeros((), dtype=images.dtype, device="cuda")
    arrays = {"images": images.contiguous(), "labels": labels.contiguous(), "loss": loss}
    for key, array in arrays.items():
        context.set_tensor_address(key, array.data_ptr())

    def run_engine(*_):
        context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
        return loss
    run_engine.arrays = engine, arrays  # alive as long as the engine runs on them
    return run_engine


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
    failed = False
    for how in ways or ("eager", "compile", "reduce-overhead"):
        try:
            is_inference = how.startswith("inference") or how == "tensorrt"
            row = (infer if is_inference else measure)(name, files, precision, float(seconds), how)
        except Exception as error:  # whatever PyTorch or its compiler raises
            row = {"way": how, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
            failed = True
        print(json.dumps(row), flush=True)
    if failed and not float(seconds):
        sys.exit(f"{row['error']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
