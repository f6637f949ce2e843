"""A layer that runs on the host in float32 within a net on a device or in bfloat16; its blobs are copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer
from scaffe.layers.kernels.backend import Backend


class HostFallback(Layer):
    """Runs a float32 layer of ``inner_type`` on the CPU, backend ``host``, in a net on a device, or in one of bfloat16:
    user code, files, rare layers.

    Every pass waits for the device, if there is one. The parameters are in the net's memory with those of all other
    layers. They are copied to the inner layer before each forward, and its gradients are added to the net's."""

    temporaries = 1  # copies on their way to the net's memory

    def __init__(self, host: Backend, inner_type: type[Layer], param: Any, context: Context) -> None:
        super().__init__(param, context)
        # The random stream and the access to data are the net's; only the memory differs.
        self.inner = inner_type(param, replace(context, kernels=host, dtype=context.param_dtype))
        for name in ("n_bottoms", "n_tops", "equal_counts", "default_loss_weight", "auto_tops", "exact_tops",
                     "reshape_always"):
            setattr(self, name, getattr(self.inner, name))
        self._host_blobs: dict[int, Blob] = {}

    def check_counts(self, n_bottoms: int, n_tops: int) -> None:
        self.inner.check_counts(n_bottoms, n_tops)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return self.inner.allow_force_backward(bottom_index)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        hosts = self._shaped(bottom), self._shaped(top)
        self._pull(bottom)
        self.inner.setup(*hosts)
        for mine in self.inner.blobs:
            blob = self.context.parameter(mine.shape)
            self.put(blob, mine.data)
            self.blobs.append(blob)
        self.param_propagate_down = list(self.inner.param_propagate_down)
        self.writes_params = self.inner.writes_params
        self._show_shapes(top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Reshape the inner layer, with the bottoms' values if its shapes depend on them."""
        self._shaped(bottom)
        if self.inner.reshape_always:
            self._pull(bottom)
        self.inner.reshape(self._hosts(bottom), self._hosts(top))
        self._show_shapes(top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._pull(bottom)
        for mine, blob in zip(self.inner.blobs, self.blobs, strict=True):
            mine.data_flat[...] = self._to_host(blob.data_flat)
        self.inner.forward(self._hosts(bottom), self._hosts(top))
        self._show_shapes(top)
        for blob in top:
            blob.data_flat[...] = self._to_device(self._host_blobs[id(blob)].data_flat, blob)
        for mine, blob in zip(self.inner.blobs, self.blobs, strict=True):
            blob.data_flat[...] = self._to_device(mine.data_flat, blob)  # statistics change in forward

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Copy the tops' diffs to the host, run the inner layer, copy the bottoms' and add the parameters' diffs."""
        for blob in top:
            self._host_blobs[id(blob)].diff_flat[...] = self._to_host(blob.diff_flat)
        for mine in self.inner.blobs:
            mine.clear_diff()
        self.inner.param_propagate_down = self.param_propagate_down
        self.inner.backward(self._hosts(top), propagate_down, self._hosts(bottom))
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = self._to_device(self._host_blobs[id(blob)].diff_flat, blob)
        for mine, blob, wanted in zip(self.inner.blobs, self.blobs, self.param_propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] += self._to_device(mine.diff_flat, blob)

    def close(self) -> None:
        close = getattr(self.inner, "close", None)
        if close:
            close()

    # -- copies ---------------------------------------------------------------------------------------------
    def _hosts(self, blobs: Sequence[Blob]) -> list[Blob]:
        for blob in blobs:
            if id(blob) not in self._host_blobs:
                self._host_blobs[id(blob)] = self.inner.context.blob(blob.shape)
        return [self._host_blobs[id(blob)] for blob in blobs]

    def _shaped(self, blobs: Sequence[Blob]) -> list[Blob]:
        hosts = self._hosts(blobs)
        for blob, host in zip(blobs, hosts, strict=True):
            if host.shape != blob.shape:
                host.reshape(blob.shape)
        return hosts

    def _pull(self, blobs: Sequence[Blob]) -> None:
        for blob, host in zip(blobs, self._hosts(blobs), strict=True):
            host.data_flat[...] = self._to_host(blob.data_flat)

    def _show_shapes(self, top: Sequence[Blob]) -> None:
        for blob, host in zip(top, self._hosts(top), strict=True):
            if blob.shape != host.shape:
                blob.reshape(host.shape)

    def _to_host(self, array: Any) -> Any:
        return self.context.kernels.to_host(array)

    def _to_device(self, array: Any, blob: Blob) -> Any:
        return self.context.kernels.to_device(array, blob.dtype)
