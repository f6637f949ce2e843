"""L-BFGS: what a solver of this type keeps and asks for. The steps are made by ``scaffe.training.lbfgs``."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.training.update_rules.base import UpdateRule, refuse_momentum, update_rules

MOST_HISTORY = 100


@update_rules.register("LBFGS")
class Lbfgs(UpdateRule):
    """Limited-memory BFGS over a batch in portions (Nocedal & Wright, 7.2; Dean et al., NIPS 2012, 4.2).

    No formula on an interval: a step depends on inner products of whole vectors, and on a line search. Histories are
    the pairs (s, y), the oldest first; those not yet made are 0. Raises UserError if the solver's numbers do not fit
    together."""

    learns_frozen = False

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        given = param.lbfgs_param
        refuse_momentum(param, self.name)
        if not 1 <= given.history <= MOST_HISTORY:
            raise UserError(f"lbfgs_param's history must be 1 to {MOST_HISTORY}, got {given.history}")
        if not 0 < given.c1 < given.c2 < 1:
            raise UserError(f"lbfgs_param needs 0 < c1 < c2 < 1, got c1 {given.c1:g} and c2 {given.c2:g}")
        for name in ("bundle", "max_trials"):
            if getattr(given, name) < 1:
                raise UserError(f"lbfgs_param's {name} must be at least 1, got {getattr(given, name)}")
        if param.iter_size > 1 or param.clip_gradients >= 0:
            raise UserError("iter_size and clip_gradients cannot be used with LBFGS: portions make up the batch, and "
                            "the line search bounds the step")
        if not param.base_lr > 0:
            raise UserError(f"LBFGS needs a base_lr above 0, the length of the first trial; got {param.base_lr:g}")
        self.n_histories = 2 * given.history

    def portion(self) -> int | None:
        return int(self.param.lbfgs_param.portion)
