"""Servegate: the gateway in front of Triton inference servers."""

__version__ = "0.1.0"
