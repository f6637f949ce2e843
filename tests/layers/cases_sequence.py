"""Gradient cases of the forks' layers for sequences."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

LSTM = 'num_output: 2 weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" }'
CONT = np.array([[0, 0], [1, 0], [1, 1.0]])

ONE = spread((4, 1, 3), -1, 1)
STEPS = np.array([[0, 0], [1, 1], [1, 0], [1, 1.0]])
TARGETS = np.array([[1, 0], [0, -1], [-1, -1], [-1, -1.0]])
CTC = 'type: "WarpCTCLoss" ctc_loss_param { blank_index: 2 }'

CASES: dict[str, list[Case]] = {
    "Lstm": [
        Case(f'type: "Lstm" lstm_param {{ {LSTM} }}', ((3, 2, 2),), batch=False, label="by steps"),
        Case(f'type: "Lstm" lstm_param {{ {LSTM} batch_size: 2 clipping_threshold: 100 }}', ((6, 3), CONT.ravel()),
             gradient=(0,), batch=False, label="with continuations"),
        Case(f'type: "Lstm" lstm_param {{ {LSTM} batch_size: 2 }}', ((4, 3, 1, 1),), label="one batch of all steps"),
    ],
    "WarpCTCLoss": [  # of one sequence: the gradient is that of the sum
        Case('type: "WarpCTCLoss"', (ONE, np.array([[2, 0, 1.0]])), gradient=(0,), batch=False),
        Case(CTC, (ONE, STEPS[:, :1], TARGETS[:, :1]), gradient=(0,), batch=False, label="indicators"),
        Case(CTC, (ONE, np.array([3.0]), np.array([2.0]), np.array([[1], [1], [0.0]])), gradient=(0,), batch=False,
             label="lengths"),
    ],
    "CtcLoss": [Case('type: "CtcLoss" ctc_loss_param { alphabet_size: 3 time_step: 3 blank_label: 1 }',
                     (ONE, np.array([[2, 1, 2.0]])), gradient=(0,), batch=False)],
    "CTCGreedyDecoder": [
        Case('type: "CTCGreedyDecoder"', (spread((5, 2, 3)),), batch=False),
        Case('type: "CTCGreedyDecoder" ctc_decoder_param { blank_index: -1 ctc_merge_repeated: false }',
             (spread((5, 2, 3)), np.array([[0, 1, 1], [1, -1, 0.0]])), batch=False),
    ],
    "LabelsequenceAccuracy": [
        Case('type: "LabelsequenceAccuracy" labelsequence_accuracy_param { blank_label: 2 }',
             (spread((2, 5, 3)), np.array([[0, 1, 2], [1, 0, 1.0]])))],
    "Reverse": [Case('type: "Reverse"', ((3, 2),)), Case('type: "Reverse" reverse_param { axis: 2 }', ((1, 2, 3, 2),))],
    "ReverseTime": [
        Case('type: "ReverseTime"', ((4, 3, 2), np.array([4, 0, 3.0])), gradient=(0,), batch=False),
        Case('type: "ReverseTime" reverse_time_param { copy_remaining: true }', ((3, 2), np.array([2, 1.0])),
             gradient=(0,), batch=False),
    ],
    "Transpose": [
        Case('type: "Transpose" transpose_param { dim: 3 dim: 2 dim: 0 dim: 1 }', ((1, 2, 3, 2),), batch=False)],
    "Flip": [
        Case('type: "Flip"', ((1, 2, 3, 2),)),
        Case('type: "Flip" flip_param { flip_width: false flip_height: true }', ((2, 1, 3, 2),)),
    ],
    "ContinuationIndicator": [
        Case('type: "ContinuationIndicator" continuation_indicator_param { time_step: 3 batch_size: 2 }'),
        Case('type: "ContinuationIndicator" continuation_indicator_param { time_step: 2 batch_size: 3 flag: true }'),
        Case('type: "ContinuationIndicator" continuation_indicator_param { time_step: 2 batch_size: 3 }',
             (np.array([1, 0, 0.5]),), batch=False),
    ],
}

NO_GRADIENT: dict[str, str] = {"ContinuationIndicator": "flags", "CTCGreedyDecoder": "chooses labels",
                               "LabelsequenceAccuracy": "counts"}
