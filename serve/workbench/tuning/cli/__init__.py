"""`servegate batching tune`."""
