"""Update rules: how a gradient and the histories change the parameters. Files are found here, rules by their names."""

from scaffe.training.update_rules.base import Hyper, UpdateRule, update_rules

__all__ = ["Hyper", "UpdateRule", "update_rules"]
