"""The Triton and the gateway in front of it that tests of clients use."""

from ...triton.conftest import Beside, bare_triton_factory, beside

__all__ = ["Beside", "bare_triton_factory", "beside"]
