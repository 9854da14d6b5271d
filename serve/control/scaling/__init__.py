"""Scaling: what is seen of pools, what is decided from it, and who is told."""
