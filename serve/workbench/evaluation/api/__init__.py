"""Datasets and evaluations over the admin API."""
