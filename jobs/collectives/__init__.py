"""Collectives: flight-recorder dumps matched across ranks."""
