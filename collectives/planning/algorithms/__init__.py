"""Planners, found by being in a file of this folder; see `planning.call.planner` for what they say of themselves.

From then on the simulator tests a planner, `bench -a NAME` runs it and `tune` measures it.
"""
