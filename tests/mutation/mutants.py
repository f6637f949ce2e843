"""What is taken out, and the tests that have to notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

ORDER = ("mpi", "tests/collectives/device/test_order.py", "tests/collectives/device/test_threads.py", "-k",
         "not missing_order")
VALUES = ("mpi", "tests/collectives/device/test_collectives.py", "-k", "mpi or two_ranks or (M and bcast)")
WINDOWS = ("mpi", "tests/collectives/device/test_windows.py", "tests/collectives/device/test_mistakes.py")
STAGING = ("one", "tests/collectives/cuda/test_staging.py", "tests/collectives/cuda/test_device.py")
TRAINING = ("one", "tests/scaffe/device/test_training.py", "-k", "lenet or waits")
HALVES = ("one", "tests/scaffe/device/test_training.py", "-k", "weights_that")
PYCAFFE = ("one", "tests/scaffe/device/test_pycaffe.py")
GRAPHS = ("one", "tests/scaffe/nets/test_cuda_graphs.py")
DECODED = ("one", "tests/layers/cuda/test_image_decoder.py")
BATCHES = ("one", "tests/layers/cuda/test_batches.py")
MASKS = ("one", "tests/scaffe/device/test_resume.py", "-k", "recorded")
MOVES = ("one", "tests/scaffe/device/test_limited_memory.py", "-k", "bits_are and move")
WITHIN = ("one", "tests/scaffe/device/test_limited_memory.py", "-k", "built_and_trained_within")
TESTED = ("one", "tests/scaffe/device/test_limited_memory.py", "-k", "test_nets_read and not bf16")
PULLED = ("one", "tests/scaffe/device/test_limited_memory.py", "-k", "pulled")
REPLICAS = ("one", "tests/scaffe/device/test_limited_memory.py", "-k", "goes_on_from or (being_asked and downpour)")
CUTS = ("one", "tests/scaffe/memory/test_layout.py")
TABLES = ("one", "tests/collectives/server/test_in_file.py", "-m", "not thorough")
ROWS = ("one", "tests/collectives/server/test_device.py", "-k", "first_rows")
LANES = ("one", "tests/scaffe/memory/test_disk_lanes.py")
SPILLED = ("one", "tests/scaffe/training/test_limited_memory.py", "-m", "not mpi_job", "-k",
           "(bits_are and move) or goes_on_from or copy_of_served or test_nets_read or no_more_is or never_whole")
FUSED = ("one", "tests/scaffe/nets/test_fusion.py")
POOLED = ("one", "tests/scaffe/device/test_batch_norm.py")
FILLED = ("one", "tests/scaffe/memory/test_report.py")
BY_ROWS = ("one", "tests/layers/test_row_gradients.py")
SIGNS = ("one", "tests/layers/test_sign_masks.py")
SEVERAL = ("mpi", "tests/collectives/device/test_order.py", "-k", "many or values_for_out or follow")


class Mutant(NamedTuple):
    """One change.

    Attributes:
        path: of the file, from the repository's root.
        old: what is taken out; its first occurrence.
        new: what stands in its place.
        tests: how many processes, and pytest's arguments.
    """

    path: str
    old: str
    new: str
    tests: tuple[str, ...]


CUDA, SERVER = "collectives/cuda", "collectives/server"
KERNELS = "layers/kernels/cuda"
MUTANTS = (
    Mutant(f"{CUDA}/streams.py", "after.hold_and_end(self.comm)", "pass", ORDER),
    Mutant(f"{CUDA}/streams.py", "Point.now(self.comm)", "Point.now(self.copy)", ORDER),
    Mutant(f"{CUDA}/streams.py", "self.comm.use()", "self.copy.use()", ORDER),
    Mutant(f"{CUDA}/streams.py", "self._before.pop().use()", "self._cuda.Stream.null.use()", ORDER),
    Mutant(f"{CUDA}/device.py", "load().cuda.get_current_stream().synchronize()", "pass", WINDOWS),
    Mutant("collectives/request.py", "self._point.hold(stream)", "pass", ORDER),
    Mutant("collectives/runtime/engine.py", "point.hold_and_end()", "pass", VALUES),
    Mutant("collectives/runtime/device_on_demand.py", "make_current(self._gpu)", "pass", ORDER),
    Mutant("collectives/runtime/ranks.py", "self.on_device.take_gpu()\n        self.losses.or_default",
           "self.losses.or_default", ORDER),
    Mutant(f"{CUDA}/ipc/signals.py", "self._own[kind].record(self._stream)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/signals.py", "self._others[kind][rank].hold(self._stream)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/signals.py", "wait_until(Point.now(self._stream).is_reached, self._backs_off)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/node.py", "self._signals.announce(READY)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/node.py", "self._signals.follow(READY, self._everyone)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/node.py", "self._signals.announce(DONE)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/node.py", "self._signals.follow(DONE, working)", "pass", ORDER),
    Mutant(f"{CUDA}/ipc/windows.py", "cupy.cuda.get_current_stream().synchronize()", "pass", WINDOWS),
    Mutant(f"{CUDA}/messages/message.py", "self._ready.mark(self._queues.streams.comm)", "pass", ORDER),
    Mutant(f"{CUDA}/messages/staging.py", "self._ready.hold(stream)", "pass", ORDER),
    Mutant(f"{CUDA}/messages/staging.py", "self._copied.mark(stream)", "pass", ORDER),
    Mutant(f"{CUDA}/messages/staging.py", "self._buffer.is_free() and self._ready", "self._ready", STAGING),
    Mutant(f"{CUDA}/messages/staging.py", "self._buffer.hold(self)", "pass", STAGING),
    Mutant(f"{CUDA}/backend.py", "            self._wait()\n            call", "            call", VALUES),
    Mutant(f"{CUDA}/backend.py", "wait_until(Point.now(self._streams.comm).is_reached, self._backs_off)\n        "
           "self._calls", "self._calls", VALUES),
    Mutant(f"{CUDA}/device.py", "self.hold(stream)\n        if", "if", ORDER),
    Mutant("collectives/runtime/memories.py", "device.Point.of(after).hold()", "pass", STAGING),
    Mutant(f"{KERNELS}/copies.py", "last.arrived.synchronize()", "pass", BATCHES),
    Mutant(f"{KERNELS}/copies.py", "self._stream.wait_event(consumer.record())", "consumer.record()", BATCHES),
    Mutant(f"{KERNELS}/copies.py", "slot.arrived.record(self._stream)", "pass", BATCHES),
    Mutant(f"{KERNELS}/decoding.py", "stream.synchronize()  # then", "pass  # then", DECODED),
    Mutant(f"{KERNELS}/decoding.py", "out, pixels, stream)\n        stream.synchronize()", "out, pixels, stream)",
           DECODED),
    Mutant(f"{KERNELS}/decoding.py", "device.load().cuda.Device(self._number).use()", "pass", DECODED),
    Mutant(f"{KERNELS}/arena.py", "each.pin()", "pass", BATCHES),
    Mutant(f"{KERNELS}/arena.py", "with cupy.cuda.using_allocator(pool.malloc):", "if True:", BATCHES),
    Mutant("scaffe/memory/backing/pinned.py", "lane.stream.wait_event(self._reached)", "pass", MOVES),
    Mutant("scaffe/memory/backing/pinned.py", "self._reached.record(device.current_stream())", "pass", MOVES),
    Mutant("scaffe/memory/backing/pinned.py", "device.current_stream().wait_event(self._done[number])", "pass",
           MOVES),
    Mutant("scaffe/memory/backing/pinned.py", "self._done[number].record(lane.stream)", "pass", MOVES),
    Mutant("scaffe/nets/cuda_graphs.py", " and index not in self._net.steps.behind", "", WITHIN),
    Mutant("scaffe/memory/run/limited_net.py", "ahead.add(group.stop)", "pass", CUTS),
    Mutant("scaffe/memory/run/limited_net.py", "back.add(block.stop if index == block[-1] else block.start)", "pass",
           MOVES),
    Mutant("scaffe/memory/run/limited_net.py", "step in updates or ", "", CUTS),
    Mutant("scaffe/nets/cuda_graphs.py", "self._claim(min(layers), max(layers))  # before", "pass  # before", MOVES),
    Mutant("scaffe/nets/cuda_graphs.py", "        for tier in self._net.tiers:\n            for step in ahead:\n",
           "        self._call(self._net.before_forward if is_forward else (), layers)\n"
           "        for tier in self._net.tiers:\n            for step in ahead:\n", GRAPHS),
    Mutant("scaffe/memory/backing/pinned.py", "self._all - self._shown", "self._names.keys() - self._shown",
           PULLED),
    Mutant("scaffe/memory/run/executor.py", "self.enter()", "pass", TESTED),
    Mutant("scaffe/memory/run/executor.py", "last[0].offload()", "pass", TESTED),
    Mutant("scaffe/memory/backing/pinned.py", "number in self._changing and ", "", TESTED),
    Mutant("scaffe/memory/backing/pinned.py", "mover.wait(number)", "pass", TESTED),
    Mutant("scaffe/training/limited_memory.py",
           "cut_recordings(test, found[-1].plan, (), solver.test_passes[id(test)])", "pass", TESTED),
    Mutant(f"{SERVER}/workers/buffers.py", "self._lent.mark(self._cuda.get_current_stream())", "pass", ROWS),
    Mutant(f"{SERVER}/memory/common.py",
           "self.release(start + at * array.itemsize, (chunk.stop - at) * array.itemsize)", "pass", TABLES),
    Mutant(f"{SERVER}/memory/common.py", "self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)", "pass",
           TABLES),
    Mutant(f"{SERVER}/memory/common.py", "self._pages.madvise(mmap.MADV_DONTNEED)", "pass", TABLES),
    Mutant(f"{SERVER}/memory/common.py", "raise CommError(found)", "pass", TABLES),
    Mutant("scaffe/mapped_files.py", "if not self._fault:", "if self._fault:", TABLES),
    Mutant(f"{SERVER}/shards/shard.py",
           "self.tier.release(self._addresses + mine.start * update.itemsize, update.nbytes)", "pass", TABLES),
    Mutant(f"{SERVER}/shards/shard.py",
           "self._part.tier.release(addresses, n_elems * self._total.itemsize)", "pass", TABLES),
    Mutant(f"{SERVER}/server.py", "self._running.store.tier.look()", "pass", TABLES),
    Mutant("scaffe/memory/backing/disk.py", "self._moves.pop(number).wait()", "self._moves.pop(number)", SPILLED),
    Mutant("scaffe/memory/backing/spill_file.py", "for error in [chunk.exception() for chunk in self._chunks]:",
           "for error in []:", LANES),
    Mutant("scaffe/memory/backing/spill_file.py", "self._move(part, offset + start)",
           "self._move(part, offset)", LANES),
    Mutant("scaffe/memory/backing/spill_file.py", "ThreadPoolExecutor(N_AT_ONCE, name)", "ThreadPoolExecutor(1, name)",
           LANES),
    Mutant("scaffe/memory/run/executor.py", "self.mover.wait(number)", "pass", SPILLED),
    Mutant("scaffe/memory/run/executor.py", "if action.do is Do.OFFLOADED:", "if False:", SPILLED),
    Mutant("scaffe/memory/run/executor.py", "self.updates.get(step, ())", "()", SPILLED),
    Mutant("scaffe/memory/run/chunked_updates.py", "pass  # the others have the parameters", "return", SPILLED),
    Mutant("scaffe/nets/net.py", "each.layer.keep(each.tops)", "pass", SIGNS),
    Mutant("layers/activation/relu.py", "        self.keep(top)", "        pass", SIGNS),
    Mutant("scaffe/nets/fusion.py", "not _is_summed(nodes, node)", "True", FUSED),
    Mutant("scaffe/nets/net.py", "node.includes.ran_before = True", "pass", FUSED),
    Mutant("layers/vision/pooling.py", "kernels.relu_backward(y, gy, gy, 0.0)", "kernels.relu_forward(gy, gy, 1.0)",
           FUSED),
    Mutant("layers/vision/pooling.py", "self._pool.include_relu()", "pass", POOLED),
    Mutant(f"{KERNELS}/pooling_lrn.py", "np.int32(True)", "np.int32(False)", POOLED),
    Mutant("scaffe/memory/problem/tensors.py", "for i in node.layer.filled_tops}", "for i in range(not node.bottoms)}",
           FILLED),
    Mutant("layers/fully_connected/inner_product.py", "self._plain is not None and rows.start > 0", "False", BY_ROWS),
    Mutant("scaffe/memory/run/chunked_updates.py", "self._rows[shard]()", "pass", SPILLED),
    Mutant("scaffe/memory/run/chunked_updates.py", "blob.bind_diff(None)", "pass", SPILLED),
    Mutant("scaffe/memory/run/chunked_updates.py", "shard.gradient_at = start", "pass",
           SPILLED),
    Mutant("scaffe/memory/problem/activations.py", "not in needed", "is not None", SIGNS),
    Mutant("scaffe/memory/backing/disk.py", "self._backed.hide(self._pages.arrays[number])", "pass", SPILLED),
    Mutant("scaffe/memory/backing/disk.py", "self._backed.show(self._pages.arrays[number])", "pass", SPILLED),
    Mutant("scaffe/memory/run/testing_nets.py", "self._fetch()", "pass", SPILLED),
    Mutant("scaffe/memory/run/testing_nets.py", "self._release(self._state)", "pass", SPILLED),
    Mutant("scaffe/memory/run/testing_nets.py", "self._release(self._done[step])", "pass", SPILLED),
    Mutant("scaffe/memory/backing/disk.py", "in self._shown & set(numbers)", "in set(numbers)", SPILLED),
    Mutant("scaffe/training/strategies/downpour.py", "self._local.fetch_all()", "pass", SPILLED),
    *(Mutant("scaffe/training/chunked_updates.py", "changes_in_forward=strategy.eager.may_refresh_parameters", "",
             tests)
      for tests in (SPILLED, REPLICAS)),
    *(Mutant("scaffe/training/strategies/downpour.py", "self._due = set(self.eager.taken)", "self._due = set()", tests)
      for tests in (SPILLED, REPLICAS)),
    Mutant("scaffe/training/strategies/downpour.py", "self._local.fetch_all()", "pass", REPLICAS),
    Mutant("scaffe/training/strategies/downpour.py", "or is_device(replica.net.context.kernels)", "", REPLICAS),
    Mutant("layers/kernels/device.py", "    current_stream().synchronize()", "    pass", REPLICAS),
    Mutant("scaffe/memory/backing/pinned.py",
           "device.copy_to_pinned(self._memory.arrays[number], self._places[number], device.current_stream())", "pass",
           REPLICAS),
    Mutant("layers/base/blob.py", "self._write()", "pass", HALVES),
    Mutant("scaffe/training/shard_updater.py", "if writes_copies and", "if False and", HALVES),
    Mutant("layers/kernels/device.py", "@PerDevice\ndef compute_stream", "def compute_stream", PYCAFFE),
    Mutant("layers/kernels/device.py", "load().cuda.Device(number).use()\n        found.use()", "pass", PYCAFFE),
    Mutant(f"{KERNELS}/cublas.py", 'self._check("cublasSetStream_v2", self._handle, stream)', "pass", PYCAFFE),
    Mutant(f"{KERNELS}/pooling_lrn.py", "self._check(x, y, mask)",
           "y.set(np.zeros(y.shape, y.dtype))  # from pageable memory, which no graph may keep", GRAPHS),
    Mutant("scaffe/nets/cuda_graphs.py", "self._net.context.draws.catch_up()", "pass", PYCAFFE),
)


def outdated() -> list[Mutant]:
    """The mutants whose text is no longer in their files: every test would fail on them, which proves nothing."""
    return [mutant for mutant in MUTANTS if mutant.old not in (ROOT / mutant.path).read_text()]
