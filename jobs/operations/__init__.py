"""Slow ranks, operations and steps of each job, and what they cost."""
