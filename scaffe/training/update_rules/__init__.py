"""Update rules: how a gradient and the history change the parameters. One rule a file, found by its name."""

from scaffe.training.update_rules.base import Hyper, UpdateRule, update_rules

__all__ = ["Hyper", "UpdateRule", "update_rules"]
