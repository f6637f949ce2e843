"""Strategies for training on many ranks: what is sent when. One per file, looked up by name; the loop knows none."""

from scaffe.training.strategies.base import Replica, Strategy, strategies
from scaffe.training.strategies.choice import choose_strategy

__all__ = ["Replica", "Strategy", "choose_strategy", "strategies"]
