"""What is shown of places and errors: never what would let a reader in."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit, urlunsplit

LONGEST = 300

# What the clients of object stores read from the environment.
_SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|ACCESS_KEY|ACCOUNT_KEY|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 4


def shown(url: str) -> str:
    """A URL without user, password, query and fragment, where a signature may stand. A path stays as it is."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def one_line(error: BaseException, *urls: str) -> str:
    """What an error says, in one line; ``urls`` in it as :func:`shown`, and nothing secret of the environment."""
    text = " ".join((str(error) or type(error).__name__).split())
    for url in urls:
        text = text.replace(url, shown(url))
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
