"""Machines of one job compared with each other, metric by metric."""
