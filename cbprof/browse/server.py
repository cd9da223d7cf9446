"""The server of ``cbprof view``: pages for one person on this machine, and nothing for anybody else.

It listens on 127.0.0.1 alone. The path of every page begins with a random token, which only who was given the address
knows; requests by another host's name (DNS rebinding) are refused, and no page may load anything from elsewhere or tell
elsewhere where it was opened from. Nothing is ever written.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from cbprof import api
from cbprof.browse.folder import Folder, title_of
from cbprof.browse.page import comparison_page, error_page, list_page
from cbprof.errors import CbprofError, UsageError
from cbprof.local_http import HOST, LocalHandler, LocalServer
from cbprof.render.web.report_page import report_html

LOOK_S = 1.0
REFRESH_S = 5
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answer(NamedTuple):
    """``headers``: beside those that every answer has."""

    body: str
    status: HTTPStatus = HTTPStatus.OK
    type: str = "text/html"
    headers: tuple[tuple[str, str], ...] = ()


class Site:
    """What each address shows, without HTTP. ``names``: the files that the address names."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._pages: dict[str, Callable[[list[str]], Answer]] = {
            "": lambda _: Answer(list_page(folder.root)),
            "rows": lambda _: Answer(json.dumps(folder.rows()), type="application/json"),
            "plot": self._plot,
            "report": self._report,
            "compare": self._compare,
        }

    def answer(self, page: str, names: list[str]) -> Answer:
        """The page, or a line that says why there is none."""
        show = self._pages.get(page)
        if show is None:
            return Answer(error_page("there is no such page"), HTTPStatus.NOT_FOUND)
        moved = [self.folder.finished(name) or name for name in names]
        if moved != names:
            there = f"{page}?{urlencode([('f', name) for name in moved])}"
            return Answer("", HTTPStatus.FOUND, headers=(("Location", there),))
        try:
            return show(names)
        except CbprofError as error:
            return Answer(error_page(str(error)), HTTPStatus.NOT_FOUND)

    def _open(self, names: list[str], most: int) -> list[api.Recording]:
        if not 1 <= len(names) <= most:
            raise UsageError(f"{len(names)} traces were chosen: this page shows 1 to {most}")
        return [self.folder.open(name) for name in names]

    def _plot(self, names: list[str]) -> Answer:
        """A file that is being written is drawn anew every few seconds; the address keeps the view."""
        first, *others = self._open(names, 2)
        grows = any(self.folder.is_growing(name) for name in names)
        again = (("Refresh", str(REFRESH_S)),) if grows else ()
        return Answer(first.plot(others[0] if others else None).page, headers=again)

    def _report(self, names: list[str]) -> Answer:
        return Answer(report_html({each.name: each.trace for each in self._open(names, 2)}))

    def _compare(self, names: list[str]) -> Answer:
        if len(names) != 2:
            raise UsageError("tick two traces to compare them")
        before, after = self._open(names, 2)
        return Answer(
            comparison_page(before.compare(after), title_of(names), urlencode([("f", name) for name in names]))
        )


class Server(LocalServer):
    """``token``: the first part of every path. Raises UsageError where the port is not to be had."""

    def __init__(self, site: Site, *, port: int = 0) -> None:
        self.site = site
        self.token = secrets.token_urlsafe(24)
        super().__init__(port, Handler, told=f"port {port}", remedy="choose another --port, or leave it out")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{quote(self.token)}/"


class Handler(LocalHandler):
    """Answers GET and HEAD."""

    server: Server

    def do_GET(self) -> None:  # noqa: N802 - the name of http.server
        self._send(self._answer())

    def do_HEAD(self) -> None:  # noqa: N802
        self._send(self._answer()._replace(body=""))

    def _answer(self) -> Answer:
        if not self.is_asked_by_our_name:
            return Answer(error_page("this address is for 127.0.0.1 alone"), HTTPStatus.FORBIDDEN)
        address = urlsplit(self.path)
        token, slash, page = address.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not slash:
            text = "open the address that cbprof view printed, whole"
            return Answer(error_page(text), HTTPStatus.FORBIDDEN)
        return self.server.site.answer(page, parse_qs(address.query).get("f", []))

    def _send(self, answer: Answer) -> None:
        kind = ("Content-Type", f"{answer.type}; charset=utf-8")
        self.send(answer.status, answer.body, (kind, *SAFE.items(), *answer.headers))


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Answer while the body runs, and keep the folder's figures up."""
    stop = threading.Event()

    def keep_up() -> None:
        while not stop.is_set():
            try:
                server.site.folder.look()
            except UsageError:  # the folder has gone, and may come again
                stop.wait(LOOK_S)
                continue
            if not server.site.folder.read_next():
                stop.wait(LOOK_S)

    threads = [
        threading.Thread(target=server.serve_forever, name="cbprof view", daemon=True),
        threading.Thread(target=keep_up, name="cbprof view reads", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
