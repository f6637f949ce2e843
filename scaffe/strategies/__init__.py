"""Strategies of training on many ranks: what is sent when. One a file, found by its name; the loop knows none."""

from scaffe.strategies.base import Replica, Strategy, strategies

__all__ = ["Replica", "Strategy", "strategies"]
