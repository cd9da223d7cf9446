"""Fixtures of several test files."""

from browsing import browser, visit  # noqa: F401


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes never name a test: what `gzip.compress` returns holds the second it was made in, and each worker collects."""
    return argname if isinstance(val, bytes) else None
