"""Layered layout of a directed acyclic graph, after Sugiyama et al. (IEEE Trans. SMC 11(2), 1981).

A node's layer is its longest path from a source. Arrows over several layers get a way point in each, and run straight
on beside that layer's boxes. The order within a layer follows the means of the neighbours' positions; then boxes move
towards their neighbours as far as there is room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.errors import UserError

Point = tuple[float, float]
GAP_ACROSS, GAP_ALONG = 24.0, 44.0
SWEEPS = 8
DIRECTIONS = ("TB", "BT", "LR", "RL")


@dataclass(frozen=True)
class Layout:
    """Positions in pixels: boxes' centres, arrows' way points, the whole picture's width and height."""

    centres: list[Point]
    paths: list[list[Point]]
    width: float
    height: float


def lay_out(extents: Sequence[Point], arrows: Sequence[tuple[int, int]], rankdir: str = "TB",
            room: Sequence[float] = ()) -> Layout:
    """Place boxes so that arrows run one way.

    Args:
        extents: width and height of each box.
        arrows: (start, end) box indices; they form no circle.
        rankdir: TB, BT, LR or RL: which way the arrows run (top to bottom, ...).
        room: by arrow, the pixels that it needs between its box and the next layer; none: what is usual.

    Raises:
        ValueError: another rankdir.
    """
    if rankdir not in DIRECTIONS:
        raise UserError(f"rankdir must be TB, BT, LR or RL, got {rankdir!r}")
    is_vertical = rankdir in ("TB", "BT")
    across = [w if is_vertical else h for w, h in extents]
    along = [h if is_vertical else w for w, h in extents]
    ranks = _ranks(len(extents), arrows)
    chains = _add_way_points(ranks, across, along, arrows)
    links = [link for chain in chains for link in zip(chain, chain[1:], strict=False)]
    layers = _ordered(ranks, links)
    places = _positions(layers, across, links)
    gaps = [GAP_ALONG] * len(layers)
    for (start, _), needed in zip(arrows, room, strict=False):
        gaps[ranks[start]] = max(gaps[ranks[start]], needed)
    thick = [max((along[node] for node in layer), default=0.0) for layer in layers]
    depths, total = _depths(thick, gaps)
    span = max((p + a / 2 for p, a in zip(places, across, strict=False)), default=0.0)

    def point(node: int, beyond: float = 0.0) -> Point:
        depth = depths[ranks[node]] + beyond
        depth = total - depth if rankdir in ("BT", "RL") else depth
        return (places[node], depth) if is_vertical else (depth, places[node])

    def beside(node: int) -> list[Point]:
        half = thick[ranks[node]] / 2
        return [point(node, -half), point(node, half)] if half else [point(node)]

    width, height = (span, total) if is_vertical else (total, span)
    paths = [[point(start), *(p for way in ways for p in beside(way)), point(end)] for start, *ways, end in chains]
    return Layout([point(i) for i in range(len(extents))], paths, width, height)


def _ranks(n_boxes: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way from a source; sources move right before their first taker."""
    below, above, waiting = defaultdict(list), defaultdict(list), [0] * n_boxes
    for start, end in arrows:
        below[start].append(end)
        above[end].append(start)
        waiting[end] += 1
    ranks, ready = [0] * n_boxes, [i for i in range(n_boxes) if not waiting[i]]
    while ready:
        box = ready.pop()
        for end in below[box]:
            ranks[end] = max(ranks[end], ranks[box] + 1)
            waiting[end] -= 1
            if not waiting[end]:
                ready.append(end)
    for box in range(n_boxes):
        if not above[box] and below[box]:
            ranks[box] = min(ranks[end] for end in below[box]) - 1
    return ranks


def _add_way_points(ranks: list[int], across: list[float], along: list[float],
                    arrows: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Each arrow as a chain of nodes, one a layer; the lists grow by the way points."""
    chains = []
    for start, end in arrows:
        chain = [start]
        for rank in range(ranks[start] + 1, ranks[end]):
            chain.append(len(ranks))
            ranks.append(rank)
            across.append(0.0)
            along.append(0.0)
        chains.append([*chain, end])
    return chains


def _ordered(ranks: list[int], links: list[tuple[int, int]]) -> list[list[int]]:
    """The nodes of each layer, ordered by the means of their neighbours' places, down and up in turn."""
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for node, rank in enumerate(ranks):
        layers[rank].append(node)
    above, below = _neighbours(links)
    place = {node: i for layer in layers for i, node in enumerate(layer)}
    for sweep in range(SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            layer.sort(key=lambda n: _mean([place[m] for m in neighbours[n]], place[n]))  # noqa: B023 - used at once
            place.update({node: i for i, node in enumerate(layer)})
    return layers


def _positions(layers: list[list[int]], across: list[float], links: list[tuple[int, int]]) -> list[float]:
    """Centres across the layers: a gap between those of one layer, and each near those that it is linked to."""
    places = [0.0] * len(across)
    for layer in layers:
        _pack(layer, places, across, [0.0] * len(layer))
    above, below = _neighbours(links)
    for sweep in range(2 * SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            _pack(layer, places, across, [_mean([places[m] for m in neighbours[n]], places[n]) for n in layer])
    least = min((p - a / 2 for p, a in zip(places, across, strict=False)), default=0.0)
    return [p - least for p in places]


def _pack(layer: list[int], places: list[float], across: list[float], wanted: list[float]) -> None:
    """Give a layer's nodes the places wanted, pushed apart where they would touch: the mean of pushing either way."""
    def push(order: range, sign: int) -> dict[int, float]:
        pushed: dict[int, float] = {}
        edge = None
        for i in order:
            node, place = layer[i], sign * wanted[i]
            if edge is not None:
                place = max(place, edge + GAP_ACROSS + across[node] / 2)
            pushed[node], edge = sign * place, place + across[node] / 2
        return pushed

    forth, back = push(range(len(layer)), 1), push(range(len(layer) - 1, -1, -1), -1)
    for node in layer:
        places[node] = (forth[node] + back[node]) / 2


def _depths(thick: list[float], gaps: list[float]) -> tuple[list[float], float]:
    """Each layer's centre line, and where the last one ends; behind each layer comes its gap."""
    depths, edge, end = [], 0.0, 0.0
    for own, gap in zip(thick, gaps, strict=True):
        depths.append(edge + own / 2)
        end = edge + own
        edge = end + gap
    return depths, end


def _neighbours(links: list[tuple[int, int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above, below = defaultdict(list), defaultdict(list)
    for start, end in links:
        below[start].append(end)
        above[end].append(start)
    return above, below


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
