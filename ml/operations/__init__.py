"""What each rank did in each step: working or waiting, compared with its group, its own past, and other jobs."""
