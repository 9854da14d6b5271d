"""Source models for tests; see `rows.py`."""

from . import convolutional, failing, graphs, sequences
from .rows import ROWS, Row

__all__ = ["ROWS", "Row", "convolutional", "failing", "graphs", "sequences"]
