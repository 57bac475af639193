"""The fleet's reliability figures."""
