"""Evaluation: labelled datasets, runs of versions over them, and what the numbers say."""
