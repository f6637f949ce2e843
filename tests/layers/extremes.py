"""Layers with options that nobody means: each number of each case's messages at the ends of its type.

    python -m tests.layers.extremes [--shapes] [--every N] [LAYER_TYPE ...]

With --shapes the options stay, and bottoms have shapes that nobody means, one at a time and all of them, at first or
after their own. Tries all (or every Nth) one after another, in this process, and names each before it begins: the last
line says what crashed or never ended. A layer may work or raise LayerError; whatever else it raises is reported.
Bottoms without elements are tried too.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from scaffe.errors import LayerError
from scaffe.proto.raw_strings import is_repeated
from tests.layers.gradient_check import Case, load_cases
from tests.layers.rig import Rig, layer_parameter

MOST_BYTES = 4 << 30  # of address space beyond what the process has: a layer that takes more gets a MemoryError
MOST_SECONDS = 60  # for one trial, which may compile
ELEMS_A_SECOND = 1_000_000  # a large blob has more time
REALS = (0.0, -1.0, 3e38, -3e38, 1e-45, float("inf"), float("-inf"), float("nan"))
WHOLE: dict[int, tuple[int, ...]] = {
    Field.CPPTYPE_INT32: (0, -1, 2, 2**31 - 1, -(2**31)),
    Field.CPPTYPE_UINT32: (0, 2, 2**31 - 1, 2**31, 2**32 - 1),
    Field.CPPTYPE_INT64: (0, -1, 2, 2**31 - 1, 2**31, 2**33, 2**63 - 1, -(2**63)),
    Field.CPPTYPE_FLOAT: REALS, Field.CPPTYPE_DOUBLE: REALS,
}
SHAPES = ((), (0,), (1,), (3,), (2, 4), (0, 4), (2, 0), (2, 4, 5), (2, 0, 5), (2, 3, 4, 5), (0, 3, 4, 5), (2, 0, 4, 5),
          (2, 3, 0, 5), (1, 1, 1, 1), (2, 3, 2, 4, 5))
NOT_READ = ("quantize_param", "transform_param", "data_param", "loss_param.debug_info")


def numbers(message: Message, path: str = "") -> Iterator[tuple[Message, Any, str]]:
    """(message, field, path) of every number that a layer's messages can hold, those in messages that are set."""
    for field in message.DESCRIPTOR.fields:
        here = f"{path}{field.name}"
        if field.message_type is not None:
            parts = getattr(message, field.name) if is_repeated(field) else (
                [getattr(message, field.name)] if message.HasField(field.name) or "filler" in field.name else [])
            for part in parts:
                yield from numbers(part, f"{here}.")
        elif field.cpp_type in WHOLE and field.enum_type is None:
            yield message, field, here


def trials(case: Case) -> Iterator[tuple[str, str]]:
    """(what is changed, the layer's text) for a case."""
    for i in range(len(list(numbers(layer_parameter(case.prototxt))))):
        for value in _values(case, i):
            param = layer_parameter(case.prototxt)
            message, field, path = list(numbers(param))[i]
            if path.startswith(NOT_READ) or "_param" not in path:
                continue
            if is_repeated(field):
                old = list(getattr(message, field.name))
                del getattr(message, field.name)[:]
                getattr(message, field.name).extend([value, *old[1:]])
            else:
                setattr(message, field.name, value)
            yield f"{path} = {value}", str(param)


def _values(case: Case, i: int) -> tuple[Any, ...]:
    _, field, _ = list(numbers(layer_parameter(case.prototxt)))[i]
    return WHOLE[field.cpp_type]


def attempt(case: Case, text: str, *inputs: list[np.ndarray]) -> None:
    """Build the layer, run it forward, and backward where it has a gradient. A refusal is as good as success.

    With a second list of bottoms' data it runs forward once more, and backward then.

    So is a MemoryError, of which the net makes one line, and a long time if there is much to compute.
    """
    with suppress(LayerError, MemoryError), np.errstate(all="ignore"):
        rig = Rig(text, inputs[0], case.n_tops, case.in_place, case.phase, np.float32)
        blobs = (*rig.top, *rig.layer.blobs)
        signal.alarm(MOST_SECONDS + sum(blob.n_elems for blob in blobs) // ELEMS_A_SECOND)
        tops = rig.forward() if len(inputs) == 1 else rig.feed(*inputs[1])
        rig.backward([np.ones(top.shape, np.float32) for top in tops], case.propagate_down())


class TooLong(BaseException):
    """The alarm rang."""


def _ring(*_: Any) -> None:
    raise TooLong


def every_trial(types: list[str]) -> Iterator[tuple[str, Case, str, list[np.ndarray]]]:
    """(name, case, the layer's text, its bottoms' data)."""
    for layer_type, cases in load_cases()[0].items():
        for number, case in enumerate(cases if not types or layer_type in types else ()):
            inputs = case.inputs()
            for what, text in trials(case):
                yield f"{layer_type} {number} {what}", case, text, inputs
            for axis in (0, 1, -1):
                empty = [np.zeros([n * (i != axis % x.ndim) for i, n in enumerate(x.shape)]) if x.ndim else x
                         for x in inputs]
                yield f"{layer_type} {number} axis {axis} of no length", case, case.prototxt, empty


def every_shape(types: list[str]) -> Iterator[tuple[Any, ...]]:
    """As ``every_trial``: each case's bottoms in other shapes, filled with the case's own values, alone and after the
    case's own bottoms."""
    for layer_type, cases in load_cases()[0].items():
        is_asked = layer_type in types if types else layer_type != "Python"  # what a user's code raises is the user's
        for number, case in enumerate(cases if is_asked else ()):
            inputs = case.inputs()
            for changed in (*([i] for i in range(len(inputs))), range(len(inputs)) if len(inputs) > 1 else []):
                for shape in _shapes([inputs[i].shape for i in changed]):
                    bottoms = [np.resize(x, shape) if i in changed else x for i, x in enumerate(inputs)]
                    name = f"{layer_type} {number} bottoms {[b.shape for b in bottoms]}"
                    yield name, case, case.prototxt, bottoms
                    yield f"{name} later", case, case.prototxt, inputs, bottoms


def _shapes(own: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The shapes for bottoms; for one alone also those near its own."""
    yield from SHAPES if own else ()
    if len(own) == 1 and own[0]:
        first, *others = own[0]
        yield from ((*others,), (first, *others[:-1]), (*own[0], 1), (1, *own[0]), (first + 1, *others),
                    (*own[0][:-1], own[0][-1] + 1))
        yield from ((*own[0][:i], 0, *own[0][i + 1:]) for i in range(len(own[0])))


def failure(case: Case, text: str, *inputs: list[np.ndarray]) -> str:
    """What went wrong in a trial, in one line; empty if nothing did."""
    signal.alarm(MOST_SECONDS)
    try:
        attempt(case, text, *inputs)
    except (Exception, TooLong) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]} ({place.filename.rpartition('/')[2]}:{place.lineno})"
    finally:
        signal.alarm(0)
    return ""


def main(arguments: list[str]) -> int:
    """Run the trials. Returns how many failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("types", nargs="*")
    args = parser.parse_args(arguments)
    n_pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (n_pages * resource.getpagesize() + MOST_BYTES,) * 2)
    signal.signal(signal.SIGALRM, _ring)
    n_trials = n_failed = 0
    for index, (name, *trial) in enumerate((every_shape if args.shapes else every_trial)(args.types)):
        if index % args.every:
            continue
        print(name, flush=True)
        said = failure(*trial)
        if said:
            print(f"FAILED {name}: {said}", flush=True)
        n_trials, n_failed = n_trials + 1, n_failed + bool(said)
    print(f"{n_trials} trials, {n_failed} failed")
    return n_failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
