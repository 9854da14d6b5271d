"""Readers of model files: what they take and give, found in a child process under limits."""
