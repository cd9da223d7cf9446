"""Fixtures of several test files."""

from browsing import browser, visit  # noqa: F401
