"""Fixtures of several test files, and what holds for all."""

import signal

from browsing import browser, visit  # noqa: F401
from hypothesis import settings

# No test asserts how long something takes. `scripts/test --hypothesis-profile thorough` tries more examples.
settings.register_profile("quick", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("quick")

# Under nohup, and in the background of a shell, SIGINT is ignored, and so it would be in the runs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes never name a test: `gzip.compress` puts the second into them, and each worker collects for itself."""
    return argname if isinstance(val, bytes) else None
