"""Straggler what-if analysis: how long a step would take without its stragglers, and who they are.

Formulas: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI '25).
"""
