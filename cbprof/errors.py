"""What can go wrong, in the user's words.

Every error that a user can cause is a :class:`CbprofError`. Its text is one line that says what is wrong, where,
and what to do; the command line prints it and exits with ``exit_code``.
"""


class CbprofError(Exception):
    """Base of all errors that are meant for the user. ``exit_code`` is the exit status of the command line."""

    exit_code = 3


class UsageError(CbprofError):
    """The request itself cannot be carried out: an unknown model, a batch of 0, a device that is not there."""

    exit_code = 2


class DataError(CbprofError):
    """A file cannot be read as what it claims to be (empty, not JSON, another tool's, a newer schema)."""

    exit_code = 3


class EngineError(CbprofError):
    """A run failed after it had started: the device process died, the device ran out of memory."""

    exit_code = 3
