"""Tensors as numpy: one implementation for CLI, UI, contracts, evaluation and load tests."""
