"""What all tests share: property tests try the same examples every time, and write nothing."""

from hypothesis import settings

settings.register_profile("repeatable", database=None, deadline=None, derandomize=True)
settings.load_profile("repeatable")
