"""Benchmarks: ratios of interleaved runs on one machine, never absolute times."""
