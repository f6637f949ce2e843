"""HDF5Output: writes two blobs to an HDF5 file, batch after batch (Caffe 1.0's file layout; needs h5py)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.hdf5_file import PatientFile
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import NoGradient
from scaffe.proto.byte_text import path_of

DATASETS = ("data", "label")


@layer_types.register("HDF5Output")
class Hdf5Output(NoGradient):
    """Appends bottom 0 to the dataset "data" and bottom 1 to the dataset "label" at every forward.

    Both datasets have the axes (N, C, H, W); axes that a bottom lacks have length 1. Every forward flushes the file, so
    that it is complete after each batch. Caffe 1.0's own layer fails at the second batch; this one appends it.
    """

    n_bottoms = (2, 2)
    n_tops = (0, 0)
    host_only = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Create the file or empty it. Raises LayerError if h5py is missing or the file cannot be written."""
        name = self.param.hdf5_output_param.file_name
        try:
            import h5py

            self._out = PatientFile(path_of(name))
            self._file = h5py.File(self._out, "w")
        except ImportError as error:
            raise LayerError("needs the package h5py: pip install h5py") from error
        except OSError as error:
            raise self._refusal(error) from error

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Check the bottoms. Raises LayerError if their batch sizes differ or one has more than 4 axes."""
        shapes = [b.shape for b in bottom]
        if shapes[0][:1] != shapes[1][:1] or max(map(len, shapes)) > 4 or not min(map(len, shapes)):
            raise LayerError(f"wants two bottoms of one batch size and 1 to 4 axes, got {shapes[0]}, {shapes[1]}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Append the batch. Raises LayerError if the items' shape has changed or the file cannot be written."""
        for name, blob in zip(DATASETS, bottom, strict=True):
            items = blob.data.reshape(blob.shape + (1,) * (4 - blob.ndim))
            if name not in self._file:
                self._file.create_dataset(name, data=items, maxshape=(None, *items.shape[1:]))
                continue
            kept = self._file[name]
            if kept.shape[1:] != items.shape[1:]:
                raise LayerError(f"items of {name!r} were {kept.shape[1:]} and are now {items.shape[1:]}")
            kept.resize(len(kept) + len(items), axis=0)
            kept[-len(items) :] = items
        self._file.flush()
        if self._out.error:
            self.close()
            raise self._refusal(self._out.error)

    def _refusal(self, error: OSError) -> LayerError:
        name = self.param.hdf5_output_param.file_name
        return LayerError(f"hdf5_output_param.file_name {name!r} cannot be written: {(error.strerror or '').lower()}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._out.close()
