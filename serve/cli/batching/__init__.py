"""`servegate batching`: how versions are batched."""
