"""Collectives: who came, who did not, and whom the others wait for."""
