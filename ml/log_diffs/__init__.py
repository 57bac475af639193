"""Logs compared on three axes: across jobs, across peers, across time."""
