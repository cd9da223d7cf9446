"""A web server for this machine alone, which ``cbprof view`` and ``--metrics`` are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cbprof.errors import UsageError

HOST = "127.0.0.1"


class LocalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. Raises UsageError, ``told`` and ``remedy`` around why, where the port is not to be had."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[LocalHandler], *, told: str, remedy: str) -> None:
        try:
            super().__init__((HOST, port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{told}: cannot be listened on: {reason}; {remedy}") from None

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle of an answer is no error of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class LocalHandler(BaseHTTPRequestHandler):
    """Answers nothing yet, and logs nothing: the terminal is somebody else's."""

    server: LocalServer
    server_version = "cbprof"
    sys_version = ""

    @property
    def is_asked_by_our_name(self) -> bool:
        """A page elsewhere whose name leads here (DNS rebinding) asks by that name."""
        port = self.server.server_port
        return self.headers.get("Host") in {f"{HOST}:{port}", f"localhost:{port}"}

    def send(self, status: HTTPStatus, text: str, headers: Iterable[tuple[str, str]]) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
