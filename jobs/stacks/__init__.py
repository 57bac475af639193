"""Stacks: merged over ranks, compared over ranks and over time."""
