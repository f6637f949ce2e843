"""NVIDIA DALI's CPU pipeline over the same data, in its own interpreter; driven by ``benchmarks/readers.py``.

    python dali_readers.py dali KIND PATH WORKERS BATCH CROP MEAN SCALE TRAIN

Prints and reads what torch_readers.py does. Records are decoded, cropped, mirrored, shifted and scaled as by Caffe.
"""

import json
import sys
import time

import numpy as np
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def images(kind, path, crop, mean, scale, train):
    """Floats (N, C, H, W), blue first, and labels."""
    if kind == "jpeg":
        files, labels = fn.readers.caffe(path=path, name="reader")
    else:
        files, labels = fn.readers.file(file_root="/", file_list=path, name="reader")
    pixels = fn.decoders.image(files, device="cpu", output_type=types.BGR)
    place = {"crop_pos_x": fn.random.uniform(range=(0, 1)), "crop_pos_y": fn.random.uniform(range=(0, 1)),
             "mirror": fn.random.coin_flip()} if train else {}
    return fn.crop_mirror_normalize(pixels, crop=(crop, crop), mean=[mean] * 3, std=[1 / scale] * 3,
                                    output_layout="CHW", dtype=types.FLOAT, **place), labels


def main(_, kind, path, n_workers, batch, crop, mean, scale, train):
    """Serve timings until the input ends."""
    pipeline = images(kind, path, int(crop), float(mean), float(scale), train == "1", batch_size=int(batch),
                      num_threads=int(n_workers), device_id=None, prefetch_queue_depth=4)
    pipeline.build()
    pipeline.run()
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            batch_images, labels = pipeline.run()
        seconds = time.perf_counter() - start
        total = float(np.sum(batch_images.as_array(), dtype=np.float64)) + float(np.sum(labels.as_array()))
        print(json.dumps({"seconds": seconds, "total": total}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
