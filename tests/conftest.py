"""Fixtures of several test files."""

from browsing import browser, visit  # noqa: F401


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes never name a test: `gzip.compress` puts the second into them, and each worker collects for itself."""
    return argname if isinstance(val, bytes) else None
