"""`servegate hints simulate`."""
