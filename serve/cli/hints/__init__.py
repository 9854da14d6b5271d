"""`servegate hints`: how many replicas each pool should have, and why."""
