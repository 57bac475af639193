"""Ingest: the archive's new and changed jobs into bronze and silver tables."""
