"""Converters of SSD's layers to lines of a PyTorch module (Liu et al. 2016)."""

from __future__ import annotations

from scaffe.errors import UserError
from scaffe.export.torch_code import Code, number
from scaffe.export.torch_converters import converts
from scaffe.nets.net_layer import Node

CENTER_SIZE, CORNER = 2, 1
DETECTIONS = '''def detection_output(offsets, scores, priors, n_classes, background, centred, sized, varied, least,
                     most, overlap, eta, keep):
    """The objects that offsets and scores say: rows (item, label, score, xmin, ymin, xmax, ymax), as Caffe's layer."""
    priors, variances = priors.reshape(2, -1, 4)
    n_items, n_priors = offsets.shape[0], priors.shape[0]
    offsets = offsets.reshape(n_items, n_priors, -1, 4).movedim(2, 1)
    scores = scores.reshape(n_items, n_priors, n_classes).movedim(2, 1)
    offsets = offsets * variances if varied else offsets
    sizes = priors[:, 2:] - priors[:, :2]
    if centred:
        middles = offsets[..., :2] * sizes + (priors[:, :2] + priors[:, 2:]) / 2
        halves = offsets[..., 2:].exp() * sizes / 2
        boxes = torch.cat([middles - halves, middles + halves], -1)
    else:
        boxes = priors + offsets * (sizes.repeat(1, 2) if sized else 1)
    rows = []
    for item in range(n_items):
        found = []
        for label in range(n_classes):
            if label != background:
                of_label, score = boxes[item, label if boxes.shape[1] > 1 else 0], scores[item, label]
                places = torch.nonzero(score > least)[:, 0]
                order = places[torch.argsort(score[places], descending=True, stable=True)][:most]
                kept = suppress(of_label, order, overlap, eta)
                heads = torch.tensor([item, label], dtype=score.dtype, device=score.device).expand(len(kept), 2)
                found.append(torch.cat([heads, score[kept, None], of_label[kept]], 1))
        found = torch.cat(found)
        if 0 <= keep < len(found):
            chosen = torch.argsort(found[:, 2], descending=True, stable=True)[:keep]
            found = found[chosen]
            found = found[torch.argsort(found[:, 1], stable=True)]
        rows.append(found)
    rows = torch.cat(rows)
    if not len(rows):
        rows = scores.new_full((n_items, 7), -1)
        rows[:, 0] = torch.arange(n_items)
    return rows.reshape(1, 1, -1, 7)


def suppress(boxes, order, overlap, eta):
    """Of boxes in this order, those that overlap none kept before by more; each kept one lowers that above 0.5."""
    kept, areas = [], (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)
    for place in order.tolist():
        if kept:
            others = boxes[kept]
            shared = (torch.minimum(boxes[place, 2:], others[:, 2:])
                      - torch.maximum(boxes[place, :2], others[:, :2])).clamp(min=0).prod(1)
            union = areas[place] + areas[kept] - shared
            if (torch.where(union > 0, shared / union, torch.zeros_like(union)) > overlap).any():
                continue
        kept.append(place)
        overlap = overlap * eta if eta < 1 and overlap > 0.5 else overlap
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)
'''


@converts("PriorBox", "PriorBoxClustered")
def prior_box(code: Code, node: Node) -> None:
    """The boxes for the inputs' present shapes."""
    node.layer.forward(node.bottoms, node.tops)
    code.alias(node.top_names[0], code.buffer(node, "boxes", code.on_host(node.tops[0].data).copy()))


@converts("DetectionOutput")
def detection_output(code: Code, node: Node) -> None:
    """A function that the file has."""
    p = node.param.detection_output_param
    if p.code_type not in (CORNER, CENTER_SIZE, CENTER_SIZE + 1):
        raise UserError(f"layer {node.name!r}: code_type {p.code_type} has no PyTorch form")
    nms = p.nms_param
    code.helpers["detection_output"] = DETECTIONS
    least = number(p.confidence_threshold) if p.HasField("confidence_threshold") else "-torch.inf"
    most = str(nms.top_k) if nms.HasField("top_k") and nms.top_k > -1 else "None"
    said = [*code.bottoms(node)[:3], f"n_classes={p.num_classes}", f"background={p.background_label_id}",
            f"centred={p.code_type == CENTER_SIZE}", f"sized={p.code_type != CORNER}",
            f"varied={not p.variance_encoded_in_target}", f"least={least}", f"most={most}",
            f"overlap={number(nms.nms_threshold)}", f"eta={number(nms.eta)}", f"keep={p.keep_top_k}"]
    code.write(node, f"detection_output({', '.join(said)})")
