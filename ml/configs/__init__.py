"""Configurations of training jobs: read, normalised, compared, and put into words."""
