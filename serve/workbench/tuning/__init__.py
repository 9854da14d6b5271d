"""Tuning: the setup with the highest rate under an objective, found with real load."""
