"""Bytes and their meaning: the protocols, without any input or output."""
