"""Figures and the report, drawn from tables only."""
