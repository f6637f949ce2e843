"""Strategies for training on many ranks: what is sent when. One per file, looked up by name; the loop knows none."""

from scaffe.training.strategies.base import Strategy, strategies
from scaffe.training.strategies.choice import choose_strategy, look_up
from scaffe.training.strategies.roles import SERVER, WORKER, Replica, Role, Roles

__all__ = ["SERVER", "WORKER", "Replica", "Role", "Roles", "Strategy", "choose_strategy", "look_up", "strategies"]
