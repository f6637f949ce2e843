"""SSD's formulas, box by box (weiliu89/caffe, branch ssd: prior_box_layer.cpp, bbox_util.cpp, multibox_loss_layer.cpp,
detection_output_layer.cpp, detection_evaluate_layer.cpp, solver.cpp). A box is (xmin, ymin, xmax, ymax)."""

from __future__ import annotations

import math

CORNER, CENTER_SIZE, CORNER_SIZE = 1, 2, 3


def priors(rows, columns, height, width, min_sizes, max_sizes=(), ratios=(), flip=True, clip=False, step=None,
           offset=0.5):
    """All boxes, position after position."""
    all_ratios = [1.0]
    for r in ratios:
        if not any(abs(r - other) < 1e-6 for other in all_ratios):
            all_ratios += [r, 1 / r] if flip else [r]
    step_y, step_x = step or (height / rows, width / columns)
    boxes = []
    for row in range(rows):
        for column in range(columns):
            x, y = (column + offset) * step_x, (row + offset) * step_y
            shapes = []
            for i, size in enumerate(min_sizes):
                shapes.append((int(size), int(size)))
                if max_sizes:
                    shapes.append((math.sqrt(int(size) * int(max_sizes[i])),) * 2)
                shapes += [(int(size) * math.sqrt(r), int(size) / math.sqrt(r)) for r in all_ratios[1:]]
            for w, h in shapes:
                box = [(x - w / 2) / width, (y - h / 2) / height, (x + w / 2) / width, (y + h / 2) / height]
                boxes.append([min(max(c, 0), 1) for c in box] if clip else box)
    return boxes


def area(a, edge=0):
    return 0 if a[2] < a[0] or a[3] < a[1] else (a[2] - a[0] + edge) * (a[3] - a[1] + edge)


def jaccard(a, b, edge=0):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if w < 0 or h < 0 or (w + edge) * (h + edge) == 0:
        return 0.0
    shared = (w + edge) * (h + edge)
    return shared / (area(a, edge) + area(b, edge) - shared)


def encode(code, prior, variance, box):
    pw, ph = prior[2] - prior[0], prior[3] - prior[1]
    if code == CORNER:
        raw = [b - p for b, p in zip(box, prior, strict=True)]
    elif code == CORNER_SIZE:
        raw = [(b - p) / s for b, p, s in zip(box, prior, (pw, ph, pw, ph), strict=True)]
    else:
        raw = [((box[0] + box[2]) / 2 - (prior[0] + prior[2]) / 2) / pw,
               ((box[1] + box[3]) / 2 - (prior[1] + prior[3]) / 2) / ph,
               math.log((box[2] - box[0]) / pw), math.log((box[3] - box[1]) / ph)]
    return [r / v for r, v in zip(raw, variance, strict=True)]


def decode(code, prior, variance, offsets):
    o = [v * x for v, x in zip(variance, offsets, strict=True)]
    pw, ph = prior[2] - prior[0], prior[3] - prior[1]
    if code == CORNER:
        return [p + x for p, x in zip(prior, o, strict=True)]
    if code == CORNER_SIZE:
        return [p + x * s for p, x, s in zip(prior, o, (pw, ph, pw, ph), strict=True)]
    x, y = o[0] * pw + (prior[0] + prior[2]) / 2, o[1] * ph + (prior[1] + prior[3]) / 2
    w, h = math.exp(o[2]) * pw, math.exp(o[3]) * ph
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def suppress(boxes, scores, threshold, top_k=-1, eta=1.0, least_score=-math.inf):
    """Indices of the boxes that stay."""
    order = sorted((i for i in range(len(boxes)) if scores[i] > least_score), key=lambda i: -scores[i])
    kept = []
    for i in order[:top_k] if top_k > -1 else order:
        if all(jaccard(boxes[i], boxes[k]) <= threshold for k in kept):
            kept.append(i)
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return kept


def detect(offsets, scores, prior_boxes, variances, code, n_classes, background=0, threshold=0.3, top_k=-1, eta=1.0,
           keep=-1, least_score=-math.inf, share=True):
    """Rows (item, label, score, box) from nested lists offsets[item][prior][class of offsets] and
    scores[item][prior][label]."""
    rows = []
    for item, (o, s) in enumerate(zip(offsets, scores, strict=True)):
        found = []
        for label in range(n_classes):
            if label == background:
                continue
            boxes = [decode(code, p, v, x[0 if share else label]) for p, v, x in zip(prior_boxes, variances, o,
                                                                                   strict=True)]
            mine = [row[label] for row in s]
            found += [(item, label, mine[i], *boxes[i]) for i in suppress(boxes, mine, threshold, top_k, eta,
                                                                          least_score)]
        if -1 < keep < len(found):
            best = sorted(found, key=lambda row: -row[2])[:keep]
            found = sorted(best, key=lambda row: row[1])
        rows += found
    return rows or [(item, *[-1] * 6) for item in range(len(offsets))]


def match(boxes, truth, threshold, per_prediction=True, ignore_crossing=False):
    """The true box of each box (-1: none, -2: left out) and its overlap."""
    matches, best = [-1] * len(boxes), [0.0] * len(boxes)
    if not truth:
        return matches, best
    table = {}
    for i, box in enumerate(boxes):
        if ignore_crossing and any(c < 0 or c > 1 for c in box):
            matches[i] = -2
            continue
        for j, true in enumerate(truth):
            overlap = jaccard(box, true)
            if overlap > 1e-6:
                table[i, j] = overlap
                best[i] = max(best[i], overlap)
    free = set(range(len(truth)))
    while True:
        pairs = [(overlap, -i, -j) for (i, j), overlap in table.items() if matches[i] == -1 and j in free]
        if not pairs:
            break
        overlap, i, j = max(pairs)
        matches[-i], best[-i] = -j, overlap
        free.remove(-j)
    if per_prediction:
        for i in range(len(boxes)):
            pairs = [(o, -j) for (k, j), o in table.items() if k == i and o >= threshold]
            if matches[i] == -1 and pairs:
                best[i], j = max(pairs)
                matches[i] = -j
    return matches, best


def softmax_loss(scores, label):
    highest = max(scores)
    return math.log(sum(math.exp(s - highest) for s in scores)) - (scores[label] - highest)


def logistic_loss(scores, targets):
    return sum(math.log(1 + math.exp(-abs(s))) + max(s, 0) - s * t for s, t in zip(scores, targets, strict=True))


def smooth_l1(d):
    return d * d / 2 if abs(d) < 1 else abs(d) - 0.5


def average_precision(scores, hits, n_positive, version):
    """As ComputeAP of bbox_util.cpp, with its loops."""
    if not scores or not n_positive:
        return 0.0
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    right, precision, recall = 0, [], []
    for n, i in enumerate(order, 1):
        right += hits[i]
        precision.append(right / n)
        recall.append(right / n_positive)
    if version == "11point":
        return sum(max((p for p, r in zip(precision, recall, strict=True) if r >= j / 10 - 1e-9), default=0)
                   for j in range(11)) / 11
    total, last = 0.0, 0.0
    for i, r in enumerate(recall):
        height = max(precision[i:]) if version == "MaxIntegral" else precision[i]
        total, last = total + height * (r - last), r
    return total


def multibox_loss(offsets, scores, prior_boxes, variances, truth, *, code=CORNER, l2=False, logistic=False,
                  loc_weight=1.0, threshold=0.5, per_prediction=True, ratio=3.0, neg_overlap=0.5, mining="max",
                  sample_size=64, use_difficult=True, ignore_crossing=False, in_target=False):
    """The loss before it is divided, and the number of matches; offsets shared by all classes, background 0.

    Args:
        offsets: [item][prior] of 4 numbers.
        scores: [item][prior] of a number a class.
        truth: rows (item, label, instance, box, difficult).
        mining: "none", "max" (MAX_NEGATIVE) or "hard" (HARD_EXAMPLE).
        the others: as MultiBoxLossParameter's.
    """
    per_offset = (lambda d: d * d / 2) if l2 else smooth_l1
    n_classes, total, n_matches = len(scores[0][0]), 0.0, 0
    for item in range(len(offsets)):
        mine = [row for row in truth if row[0] == item and (use_difficult or not row[7])]
        if not mine and mining != "none":
            continue
        matches, best = match(prior_boxes, [row[3:7] for row in mine], threshold, per_prediction, ignore_crossing)
        labels = [int(mine[m][1]) if m >= 0 else 0 for m in matches]

        def location(i, item=item, mine=mine, matches=matches):
            true = encode(code, prior_boxes[i], variances[i], mine[matches[i]][3:7])
            predicted = [o / v for o, v in zip(offsets[item][i], variances[i] if in_target else [1] * 4, strict=True)]
            return sum(per_offset(p - t) for p, t in zip(predicted, true, strict=True))

        def classes(i, label, is_counted, item=item):
            if not logistic:
                return softmax_loss(scores[item][i], label)
            return logistic_loss(scores[item][i], [float(is_counted and c == label) for c in range(n_classes)])

        positive = [i for i, m in enumerate(matches) if m >= 0]
        if mining == "none":
            total += sum(classes(i, labels[i], i in positive) for i in range(len(matches)))
        elif mining == "max":
            candidates = sorted((i for i, m in enumerate(matches) if m == -1 and best[i] < neg_overlap),
                                key=lambda i: -classes(i, 0, True))
            negative = candidates[: int(len(positive) * ratio)]
            total += sum(classes(i, labels[i], True) for i in positive + negative)
        else:
            worst = sorted(range(len(matches)), key=lambda i: -(
                classes(i, labels[i], True) + (location(i) if matches[i] >= 0 else 0)))[:sample_size]
            total += sum(classes(i, labels[i], True) for i in worst if matches[i] >= -1)
            positive = [i for i in positive if i in worst]
        total += loc_weight * sum(location(i) for i in positive)
        n_matches += len(positive)
    return total, n_matches


def evaluate(found, truth, n_classes, threshold=0.5, with_difficult=True, background=0):
    """Rows (item, label, score, is right, is wrong) behind one (-1, label, number of true boxes, -1, -1) a class."""
    rows = [(-1, c, sum(t[1] == c and (with_difficult or not t[7]) for t in truth), -1, -1)
            for c in range(n_classes) if c != background]
    for item, label in sorted({(d[0], d[1]) for d in found if d[1] != -1}):
        mine = [d for d in found if (d[0], d[1]) == (item, label)]
        true = [t for t in truth if (t[0], t[1]) == (item, label)]
        taken = set()
        for d in sorted(mine, key=lambda d: -d[2]) if true else mine:
            overlaps = [jaccard(d[3:7], t[3:7]) for t in true]
            best = max(range(len(true)), key=lambda j: overlaps[j], default=None)
            if best is None or overlaps[best] < threshold:
                rows.append((item, label, d[2], 0, 1))
            elif with_difficult or not true[best][7]:
                rows.append((item, label, d[2], int(best not in taken), int(best in taken)))
                taken.add(best)
            else:
                rows.append((item, label, d[2], 0, 0))
    return rows
