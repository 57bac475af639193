"""How alike two failures are, which form a family, and what their configurations share."""
