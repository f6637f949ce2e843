"""Runs a net within a memory plan, and shows plans to people."""
