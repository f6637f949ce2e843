"""What is asked of speeds on an H200, and whether rows of a run reach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Bar(NamedTuple):
    """Ours of a net has to be so many times as fast as another's row, in images/s; or, without another, take at most
    so many milliseconds a batch."""

    net: str
    precision: str
    batch: int
    other: str
    bound: float


NETS = ("resnet50", "googlenet", "caffenet", "vgg16")
BARS = {
    "nets": (
        Bar("resnet50", "bf16", 256, "", 27),
        *(Bar("resnet50", "bf16", 256, f"torch {way}", 1.3) for way in ("compile", "max-autotune")),
        Bar("resnet50", "bf16", 32, "torch reduce-overhead", 1.2),
        *(Bar(net, "bf16", 256, "torch compile", 1.2) for net in NETS[1:]),
        *(Bar(net, "tf32", 256, "torch compile", 1.15) for net in NETS)),
    "inference": tuple(Bar(net, "bf16", batch, f"torch {way}", 1.0) for net in NETS for batch in (1, 32)
                       for way in ("inference-compile", "tensorrt")),
}
"""By part of a run."""


def verdicts(figures: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each bar: what is asked, what was measured, and whether it is ``met``; None where one of its rows is
    missing."""
    return [_verdict(bar, figures.get(part, ())) for part, bars in BARS.items() for bar in bars]


def _verdict(bar: Bar, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    name = f"{bar.net} {bar.precision} batch {bar.batch}"
    rates = {row["what"]: row["images_per_second"] for row in rows if row.get("images_per_second")}
    ours, other = rates.get(f"{name} ours"), rates.get(f"{name} {bar.other}")
    if not bar.other:
        took = None if ours is None else 1000 * bar.batch / ours
        return {"what": name, "at_most_milliseconds": bar.bound, "measured": took,
                "met": None if took is None else took <= bar.bound}
    ratio = None if ours is None or other is None else ours / other
    return {"what": f"{name} beside {bar.other}", "at_least": bar.bound, "measured": ratio,
            "met": None if ratio is None else ratio >= bar.bound}


def shown(row: Mapping[str, Any]) -> str:
    """A verdict in words."""
    asked = f"{row['at_least']:g}x" if "at_least" in row else f"{row['at_most_milliseconds']:g} ms"
    said = {True: "met", False: "not met", None: "not measured"}[row["met"]]
    return f"{row['what']}: {said} ({asked} asked" + ("" if row["met"] is None else f", {row['measured']:.2f}") + ")"
