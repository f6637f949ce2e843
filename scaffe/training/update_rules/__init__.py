"""Update rules: how a gradient and the histories change the parameters. One per file, looked up by name."""

from scaffe.training.update_rules.base import Hyper, UpdateRule, update_rules

__all__ = ["Hyper", "UpdateRule", "update_rules"]
