"""``cbprof view``: a server for one person on this machine, over real HTTP in this process."""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsing import IN_A_BROWSER
from command_line import cbprof
from test_compare import run

from cbprof.browse import folder as folders
from cbprof.browse.folder import Folder
from cbprof.browse.server import Server, Site, serving
from cbprof.errors import DataError, UsageError
from cbprof.formats import save

EVIL = "a&b <img src=x onerror=alert(1)>.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two traces, one of them in a folder; what is none; and what no one asked for."""
    (tmp_path / "deep").mkdir()
    save(run(mode="sync"), tmp_path / EVIL)
    save(run(mode="async", host=10), tmp_path / "deep" / "b.json.gz")
    (tmp_path / "none.json").write_text("{}")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / ".hidden.json").write_text("{}")
    return tmp_path


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    """A server whose folder has been read, without the thread that keeps that up."""
    folder = Folder(root)
    folder.look()
    while folder.read_next():
        pass
    with serving(Server(Site(folder))) as server:
        yield server


def ask(server: Server, path: str, *, method: str = "GET", host: str | None = None) -> tuple[HTTPResponse, str]:
    """What the server answers to a path below the token, or to one of its own that begins with "/"."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    headers = {} if host is None else {"Host": host}
    whole = path if path.startswith("/") else f"{urlsplit(server.url).path}{path}"
    connection.request(method, whole, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/rows", "//", "/%2e%2e/", "/a/b/c"])
def test_without_the_secret_there_is_nothing(server: Server, path: str) -> None:
    answer, text = ask(server, path)
    assert answer.status == 403
    assert "sync" not in text


@pytest.mark.parametrize("path", ["*", "no-slash", "?f=a"])
def test_what_is_no_path_has_no_secret(server: Server, path: str, capfd: pytest.CaptureFixture[str]) -> None:
    connection = HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", path)
    assert connection.getresponse().status == 403
    connection.close()
    assert capfd.readouterr() == ("", "")


def test_a_browser_that_goes_away_is_no_error(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(), ConnectionResetError()):
        try:
            raise error
        except ConnectionError:
            server.handle_error(None, None)
    assert capfd.readouterr() == ("", "")


def test_the_token_needs_its_slash(server: Server) -> None:
    assert ask(server, f"/{server.token}")[0].status == 403


def test_another_name_of_this_machine_is_refused(server: Server) -> None:
    assert ask(server, "", host="evil.example")[0].status == 403
    assert ask(server, "", host=f"evil.example:{server.server_port}")[0].status == 403
    assert ask(server, "", host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    assert ask(server, "", method=method)[0].status == 501


def test_every_answer_keeps_the_address_to_itself(server: Server) -> None:
    for path in ("", "rows", "nowhere", "plot?f=deep%2Fb.json.gz", "/"):
        answer, _ = ask(server, path)
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("Cache-Control") == "no-store"
        assert "default-src 'none'" in (answer.getheader("Content-Security-Policy") or "")
        assert answer.getheader("Access-Control-Allow-Origin") is None
    answer, text = ask(server, "", method="HEAD")
    assert (answer.status, text) == (200, "")


def test_the_rows_are_the_traces_with_their_numbers(server: Server) -> None:
    rows = {row["name"]: row for row in json.loads(ask(server, "rows")[1])}
    assert set(rows) == {EVIL, "deep/b.json.gz", "none.json"}
    assert (rows[EVIL]["mode"], rows[EVIL]["idle"], rows[EVIL]["steps"]) == ("sync", "20.00 %", "20")
    assert rows[EVIL]["sentence"]
    assert "none.json: " in rows["none.json"]["reason"]
    assert not any(row["growing"] for row in rows.values())


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("plot?f=deep%2Fb.json.gz", 200, "<title>"),
        ("plot?f=deep%2Fb.json.gz&f=a%26b+%3Cimg+src%3Dx+onerror%3Dalert(1)%3E.json", 200, "<title>"),
        ("report?f=deep%2Fb.json.gz", 200, "idle"),
        ("compare?f=deep%2Fb.json.gz&f=a%26b+%3Cimg+src%3Dx+onerror%3Dalert(1)%3E.json", 200, "wall time"),
        ("compare?f=deep%2Fb.json.gz", 404, "tick two traces"),
        ("plot", 404, "0 traces were chosen"),
        ("plot?f=none.json", 404, "none.json"),
        ("plot?f=secret.txt", 404, "no such trace"),
        ("plot?f=..%2F..%2Fetc%2Fpasswd", 404, "no such trace"),
        ("plot?f=%2Fetc%2Fpasswd", 404, "no such trace"),
        ("plot?f=.hidden.json", 404, "no such trace"),
        ("plot?f=x%1b%5B31m%00", 404, "no such trace"),
        ("secret.txt", 404, "no such page"),
    ],
)
def test_pages(server: Server, path: str, status: int, said: str) -> None:
    answer, text = ask(server, path)
    assert (answer.status, answer.getheader("Content-Type")) == (status, "text/html; charset=utf-8")
    assert said in text
    assert "<img src=x" not in text
    assert "\x1b" not in text


def test_what_is_being_written_is_followed(root: Path) -> None:
    """It grows, is drawn anew as long as it does, and goes on under the name that it takes at its end."""
    save(run(), root / "whole.json")
    content = (root / "whole.json").read_bytes()
    (root / "whole.json").unlink()
    part = root / "new.json.part"
    part.write_bytes(content[: len(content) // 2])
    now = part.stat().st_mtime
    folder = Folder(root, clock=lambda: now)
    site = Site(folder)

    def row() -> dict[str, object]:
        folder.look()
        while folder.read_next():
            pass
        return next(each for each in folder.rows() if str(each["name"]).startswith("new"))

    first = row()
    assert first["growing"]
    assert dict(site.answer("plot", ["new.json.part"]).headers) == {"Refresh": "5"}
    part.write_bytes(content)
    os.utime(part, (now, now))
    now += folders.REST * 60
    second = row()
    assert int(str(second["steps"])) > int(str(first["steps"]))
    assert not second["growing"], "a killed run grows no more"
    assert site.answer("plot", ["new.json.part"]).headers == ()
    part.rename(root / "new.json")
    assert row()["name"] == "new.json"
    moved = site.answer("plot", ["new.json.part"])
    assert (moved.status, dict(moved.headers)) == (302, {"Location": "plot?f=new.json"})


def test_a_growing_file_is_not_read_all_the_time(root: Path) -> None:
    now = 1000.0
    folder = Folder(root, clock=lambda: now)
    folder.look()
    while folder.read_next():
        pass
    (root / "deep" / "b.json.gz").write_bytes(gzip.compress(b"{}"))
    folder.look()
    assert not folder.read_next()
    now += 3600
    assert folder.read_next()
    with pytest.raises(DataError, match="not a trace"):
        folder.open("deep/b.json.gz")


def test_links_and_pipes_are_no_traces(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    save(run(), elsewhere / "far.json")
    (root / "loop").symlink_to(root)
    (root / "away").symlink_to(elsewhere)
    (root / "dead.json").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe.json")
    folder = Folder(root)
    folder.look()
    assert {row["name"] for row in folder.rows()} == {EVIL, "deep/b.json.gz", "none.json"}


def test_what_cannot_be_served_is_one_line(root: Path) -> None:
    for folder in ("nowhere", "none.json"):
        done = cbprof("view", folder, "--no-open", cwd=root)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "cannot be listed" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cbprof("view", ".", "--no-open", "--port", str(port), cwd=root)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"port {port}: cannot be listened on" in done.stderr
        with pytest.raises(UsageError, match="choose another --port"):
            Server(Site(Folder(root)), port=port)


def test_the_command_prints_the_address_and_opens_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("signal.pause", interrupted)
    done = cbprof("view", cwd=root)
    assert done.returncode == 130
    assert done.stdout.splitlines()[0] == opened[0]
    assert opened[0].startswith("http://127.0.0.1:")


@IN_A_BROWSER[0]
@IN_A_BROWSER[1]
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_in_a_browser(server: Server, browser: object, scheme: str, width: int) -> None:
    problems: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[attr-defined]
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))

    def fits() -> bool:
        return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    page.goto(server.url)
    page.get_by_label(f"choose {EVIL}").check()
    assert page.locator("#compare").is_disabled()
    page.get_by_label("choose deep/b.json.gz").check()
    assert fits()
    page.locator("#compare").click()
    page.get_by_text("all traces").wait_for()
    assert fits()
    for link in ("both timelines", "report about both"):
        page.get_by_text(link).click()
        page.locator(".run").first.wait_for()
        page.go_back()
    page.get_by_text("all traces").click()
    page.get_by_text(EVIL, exact=True).click()
    page.locator(".run").first.wait_for()
    assert problems == []
    page.close()
