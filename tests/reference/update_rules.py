"""Caffe 1.0's solvers by their published formulas, and linear regression under them, in float64."""

import math

import numpy as np


def rule_step(p, t, rate, w, g, a, b):
    """One step, t counted from 1, of weights w by the decayed gradient g with histories a and b; ``p`` is the solver.

    Returns the new (w, a, b).
    """
    m = p.momentum
    if p.type == "SGD":
        a = m * a + rate * g
        return w - a, a, b
    if p.type == "Nesterov":
        before, a = a, m * a + rate * g
        return w - ((1 + m) * a - m * before), a, b
    if p.type == "AdaGrad":
        a = a + g**2
        return w - rate * g / (np.sqrt(a) + p.delta), a, b
    if p.type == "RMSProp":
        a = p.rms_decay * a + (1 - p.rms_decay) * g**2
        return w - rate * g / (np.sqrt(a) + p.delta), a, b
    if p.type == "AdaDelta":
        a = m * a + (1 - m) * g**2
        s = g * np.sqrt((p.delta + b) / (p.delta + a))
        return w - rate * s, a, m * b + (1 - m) * s**2
    a, b = m * a + (1 - m) * g, p.momentum2 * b + (1 - p.momentum2) * g**2  # Adam
    return w - rate * math.sqrt(1 - p.momentum2**t) / (1 - m**t) * a / (np.sqrt(b) + p.delta), a, b


def decayed(p, w, g, decay_mult=1.0):
    """The gradient with its weight decay."""
    return g + decay_mult * p.weight_decay * (np.sign(w) if p.regularization_type == "L1" else w)


def policy(p, i):
    """The learning rate of iteration i, from 0."""
    return p.base_lr * {
        "fixed": lambda: 1.0, "step": lambda: p.gamma ** (i // p.stepsize), "exp": lambda: p.gamma**i,
        "inv": lambda: (1 + p.gamma * i) ** -p.power, "poly": lambda: (1 - i / p.max_iter) ** p.power,
        "multistep": lambda: p.gamma ** sum(v <= i for v in p.stepvalue),
        "sigmoid": lambda: 1 / (1 + math.exp(-p.gamma * (i - p.stepsize))),
    }[p.lr_policy]()


def least_squares(p, x, y, batch, n_steps, mults):
    """Linear regression of y (N, m) on x (N, k) from weights of zero: Euclidean loss, batches of rows in turn.

    Args:
        mults: (lr_mult, decay_mult) of the weights (m, k) and of the bias (m,).

    Returns:
        per parameter its value and its two histories.
    """
    params = [np.zeros((y.shape[1], x.shape[1])), np.zeros(y.shape[1])]
    histories = [[np.zeros_like(w), np.zeros_like(w)] for w in params]
    row = 0
    for i in range(n_steps):
        sums = [np.zeros_like(w) for w in params]
        for _ in range(p.iter_size):
            rows = (row + np.arange(batch)) % len(x)
            residual = x[rows] @ params[0].T + params[1] - y[rows]
            sums[0] += residual.T @ x[rows] / batch
            sums[1] += residual.mean(0)
            row += batch
        norm = math.sqrt(sum((g**2).sum() for g in sums))
        scale = p.clip_gradients / norm if 0 <= p.clip_gradients < norm else 1.0
        for k, (lr_mult, decay_mult) in enumerate(mults):
            g = decayed(p, params[k], sums[k] * scale / p.iter_size, decay_mult)
            params[k], *histories[k] = rule_step(p, i + 1, policy(p, i) * lr_mult, params[k], g, *histories[k])
    return [[w, *h] for w, h in zip(params, histories)]
