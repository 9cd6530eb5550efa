"""Who may look at a live page, and what a browser is allowed to do with it."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from live_world import make_federation
from typer.testing import CliRunner

from fedforget.cli import page_server
from fedforget.cli.choose_command import losses_of
from fedforget.cli.directory_page import report_of
from fedforget.cli.live_page import LivePage
from fedforget.cli.main import app
from fedforget.cli.page_server import HEADERS, Guard, listening, new_token, server_of
from fedforget.errors import FedforgetError
from fedforget.parties.attempts import note_failure
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.disclosure import preset
from fedforget.parties.folders import held
from fedforget.parties.reading import PartyKind
from fedforget.parties.server_party import open_server
from fedforget.runtime import directories
from fedforget.wall_clock import using
from simulated_clock import SimulatedClock

TOWNS = ("Aarhus", "Bologna", "Coimbra")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    directories.run(folder / "server", make_federation(folder, TOWNS, records=40))
    return folder


@contextmanager
def served(folder: Path, kind: PartyKind = "server", **guard: object) -> Iterator[int]:
    """Serve a page in a thread; gives the port."""
    where = listening("127.0.0.1", 0)
    server = server_of(LivePage(folder, kind), Guard("127.0.0.1", **guard))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [where]})
    thread.start()
    try:
        yield where.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        where.close()
        assert not thread.is_alive()


def asked(
    port: int, path: str = "/", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_shell_has_no_data_and_the_content_has(root: Path) -> None:
    with served(root / "server") as port:
        answer, text = asked(port)
        assert answer.status == 200
        assert "heart study" not in text
        assert not re.search(r"<style|style=|\son[a-z]+=|https?:", text)
        assert re.findall(r"<script[^>]*>", text) == ['<script src="live.js" defer>']
        answer, text = asked(port, "/content")
        assert answer.status == 200
        assert text.lstrip().startswith("<main>")
        assert "heart study" in text
        assert "<script" not in text


@pytest.mark.parametrize("path", ["/", "/content", "/page.css", "/live.js", "/icon.svg", "/other"])
def test_every_answer_has_the_headers(root: Path, path: str) -> None:
    with served(root / "server") as port:
        answer, _ = asked(port, path)
        assert answer.status == (404 if path == "/other" else 200)
        for name, value in HEADERS.items():
            assert answer.headers.get_all(name) == [value]
        assert answer.headers.get("Server") is None
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store"


def test_nothing_can_be_changed(root: Path) -> None:
    with served(root / "server") as port:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("/", "/content"):
                assert asked(port, path, method)[0].status == 405


def test_an_unchanged_page_is_not_sent_again(root: Path) -> None:
    with served(root / "server") as port:
        wait_for(port, "chain and signatures fit")
        version = asked(port, "/content")[0].headers["ETag"]
        answer, text = asked(port, "/content", If_None_Match=version)
        assert (answer.status, text) == (304, "")


def wait_for(port: int, words: str, **headers: str) -> str:
    """The content, as soon as it has some words."""
    end = time.monotonic() + 60
    while words not in (text := asked(port, "/content", **headers)[1]):
        assert time.monotonic() < end, text
        time.sleep(0.1)
    return text


# -- foreign names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True), ("localhost:9000", True), ("LOCALHOST.", True), ("127.0.0.1", True),
        ("127.0.0.1:1", True), ("[::1]:80", True), ("centre.example", False),
        ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("192.0.2.7", False),
        ("", False), ("evil.example:8731", False), ("[2001:db8::1]", False),
    ],
)  # fmt: skip
def test_only_names_of_this_machine_are_known(host: str, known: bool) -> None:
    assert Guard("127.0.0.1").knows(host) == known


def test_elsewhere_addresses_and_given_names_are_known() -> None:
    guard = Guard("0.0.0.0", ("centre.example",), new_token())
    assert not guard.is_loopback
    assert guard.knows("centre.example:8731")
    assert guard.knows("192.0.2.7:8731")
    assert not guard.knows("evil.example")


def test_a_foreign_name_is_refused_before_anything_is_read(root: Path) -> None:
    with served(root / "server") as port:
        for path in ("/", "/content"):
            answer, text = asked(port, path, Host="evil.example")
            assert answer.status == 421
            assert "heart" not in text
            assert answer.headers["Cache-Control"] == "no-store"
        assert asked(port, Host="localhost:9000")[0].status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
)  # fmt: skip
def test_pages_from_elsewhere_get_nothing(root: Path, headers: dict[str, str]) -> None:
    with served(root / "server") as port:
        answer, text = asked(port, "/content", **headers)
        assert answer.status == 403
        assert "heart" not in text
        assert answer.headers.get("X-Token") is None
        # A link from elsewhere leads to the page all the same, which then asks for itself.
        assert asked(port, "/", **headers)[0].status == 200
        own = {"Origin": f"http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"}
        assert asked(port, "/content", **own)[0].status == 200


def test_silent_connections_keep_nobody_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "IDLE_SECONDS", 1.0)
    with served(root / "server") as port, ExitStack() as stack:
        for number in range(80):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            if number % 2:
                one.sendall(b"GET / HTTP/1.1\r\nHost: local")
        end = time.monotonic() + 30
        while asked(port)[0].status != 200:
            assert time.monotonic() < end
            time.sleep(0.2)
        # They were ended, and not only passed over.
        assert one.recv(1) == b""


def test_a_connection_that_goes_on_asking_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "IDLE_SECONDS", 0.5)
    with served(root / "server") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.connect()
        before = connection.sock
        for _ in range(12):
            connection.request("GET", "/page.css")
            assert connection.getresponse().read()
            time.sleep(0.15)
        assert connection.sock is before
        connection.close()


def test_what_is_not_an_address_is_refused() -> None:
    with pytest.raises(FedforgetError, match="is not an address"):
        listening("centre.example", 0)
    with listening("127.0.0.1", 0) as taken, pytest.raises(FedforgetError, match="cannot be used"):
        listening("127.0.0.1", taken.getsockname()[1])


# -- the token -------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_shown(root: Path) -> None:
    token = new_token()
    with served(root / "server", token=token) as port:
        for shown in ("", "Bearer ", "Bearer x", f"Bearer {token[:-1]}", f"Bearer {token}x", "é"):
            headers = {"Authorization": shown} if shown else {}
            answer, text = asked(port, "/content", **headers)
            assert answer.status == 403
            assert answer.headers["X-Token"] == "needed"
            assert "heart" not in text
        assert asked(port, f"/content?token={token}")[0].status == 403
        assert asked(port)[0].status == 200
        answer, text = asked(port, "/content", Authorization=f"Bearer {token}")
        assert answer.status == 200
        assert "heart study" in text


def test_tokens_are_long_and_different() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(one) >= 43 for one in tokens)


# -- directories in use, and in trouble ------------------------------------------------------------


def test_a_page_is_served_while_the_directory_is_held(root: Path) -> None:
    with held(root / "server"), served(root / "server") as port:
        assert "heart study" in asked(port, "/content")[1]


def test_serving_keeps_nobody_from_the_directory(root: Path) -> None:
    with served(root / "server") as port:
        for _ in range(10):
            asked(port, "/content")
            with open_server(root / "server") as server:
                assert server.status()["rounds_committed"] == 1


def test_a_directory_that_goes_away_is_told_and_the_page_stays(tmp_path: Path) -> None:
    make_federation(tmp_path, TOWNS, records=20)
    with served(tmp_path / "server") as port:
        before = wait_for(port, "chain and signatures fit")
        (tmp_path / "server" / "federation.toml").rename(tmp_path / "elsewhere")
        answer, text = asked(port, "/content")
        assert text == before
        assert "federation.toml" in unquote(answer.headers["X-Problem"])
        (tmp_path / "elsewhere").rename(tmp_path / "server" / "federation.toml")
        assert asked(port, "/content")[0].headers.get("X-Problem") is None


def test_a_directory_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    make_federation(tmp_path, TOWNS, records=20)
    with served(tmp_path / "server") as port:
        (tmp_path / "server" / "federation.toml").write_text("<b>nonsense")
        answer, text = asked(port, "/content")
        assert answer.status == 503
        assert answer.headers.get_content_type() == "text/plain"
        assert "federation.toml" in text


# -- what the pages follow -------------------------------------------------------------------------


def test_a_clients_page_follows_its_requests(tmp_path: Path) -> None:
    folders = make_federation(tmp_path, TOWNS, records=40)
    directories.run(tmp_path / "server", folders)
    with served(folders[0], "client") as port:
        text = asked(port, "/content")[1]
        assert "for this site alone" in text
        assert "What the next round takes" in text
        assert "can be sent to others" not in text
        with open_client(folders[0]) as client:
            name = client.forget(["A-3", "A-4"]).request
        text = asked(port, "/content")[1]
        assert name in text
        assert "for the next round" in text
        assert not re.search(r"\bA-\d", text)
        wait_for(port, "the stored state is that of a fresh fit of the 38 records held")
        directories.run(tmp_path / "server", folders)
        text = asked(port, "/content")[1]
        assert "for the next round" not in text
        assert "valid" in text


def test_a_servers_page_follows_rounds_and_their_drift(tmp_path: Path) -> None:
    folders = make_federation(tmp_path, TOWNS, records=40)
    directories.run(tmp_path / "server", folders)
    with served(tmp_path / "server") as port:
        assert "No round was committed since then" in asked(port, "/content")[1]
        wait_for(port, "chain and signatures fit")
        with open_client(folders[0]) as client:
            client.forget([f"A-{row}" for row in range(25)])
        directories.run(tmp_path / "server", folders)
        text = asked(port, "/content")[1]
        drift = text[text.index('<section id="drift">') : text.index('<section id="clusters">')]
        assert '<td class="number">2</td>' in drift
        assert re.search(r"[0-9.]+ %", drift)
        directories.run(tmp_path / "server", folders)
        assert "no centre has moved" in asked(port, "/content")[1]


def test_small_counts_are_on_the_live_page_alone(tmp_path: Path) -> None:
    """The page in a file may be sent to others, to whom the least cell is the least count."""
    folders = make_federation(tmp_path, TOWNS, records=40, disclosure=preset("omop", 0.01))
    with open_client(folders[0]) as client:
        client.forget(["A-3", "A-4"])
    asked_for = re.compile(r'<section id="requests">.*?</section>', re.DOTALL)
    sent = asked_for.search(report_of(folders[0])[1])
    own = asked_for.search(LivePage(folders[0], "client").content().html)
    assert sent is not None
    assert own is not None
    assert '<td class="number">fewer than 5</td>' in sent[0]
    assert '<td class="number">2</td>' in own[0]
    directories.run(tmp_path / "server", folders)
    assert '<td class="number">fewer than 5</td>' in report_of(folders[0])[1]


def test_pages_of_directories_at_every_stage(tmp_path: Path) -> None:
    """Nothing enrolled, nothing joined, nothing imported, everything erased."""
    ClientParty.create(tmp_path / "new", "new")
    assert "has not joined a federation" in LivePage(tmp_path / "new", "client").content().html
    folders = make_federation(tmp_path, TOWNS, records=0)
    assert "No round was committed yet" in LivePage(tmp_path / "server", "server").content().html
    page = LivePage(folders[0], "client")
    assert "nothing is reported" in page.content().html
    with open_client(folders[0]) as client:
        client.leave(alone=True)
    assert "a later round takes this client out" in page.content().html


def test_a_page_shows_the_curve_of_losses(root: Path) -> None:
    page = LivePage(root / "server", "server", losses=losses_of)
    end = time.monotonic() + 60
    while 'id="curve"' not in (html := page.content().html):
        assert time.monotonic() < end
        time.sleep(0.1)
    with open_server(root / "server") as server:
        losses = losses_of(server)
    assert [number for number, _ in losses][:2] == [2, 3]
    assert html.count('class="point') == len(losses)
    assert "2 clusters: loss " in html
    assert 'id="curve"' not in LivePage(root / "server", "server").content().html


def test_a_page_shows_what_is_overdue(root: Path) -> None:
    assert "overdue" not in LivePage(root / "server", "server").content().html
    with using(SimulatedClock(datetime.now(UTC) + timedelta(days=9))):
        late = LivePage(root / "server", "server").content().html
    assert "<dt>overdue</dt>" in late


def test_what_becomes_overdue_while_nothing_changes_is_shown(root: Path) -> None:
    """A federation that has stopped changes no file; its page must tell all the same."""
    for folder, kind in ((root / "server", "server"), (root / "client-0", "client")):
        page = LivePage(folder, kind)
        assert "overdue" not in page.content().html
        with using(SimulatedClock(datetime.now(UTC) + timedelta(days=9))):
            assert "<dt>overdue</dt>" in page.content().html


def test_a_round_that_never_began_is_on_the_live_page(tmp_path: Path) -> None:
    """It leaves nothing in the log. Its words may name files, so only the site sees them."""
    clock = SimulatedClock(datetime.now(UTC))
    with using(clock):
        folders = make_federation(tmp_path, TOWNS, records=20)
        directories.run(tmp_path / "server", folders)
        pages = [LivePage(tmp_path / "server", "server"), LivePage(folders[0], "client")]
        assert not any("came to nothing" in page.content().html for page in pages)
        clock.moment += timedelta(minutes=1)
        done = CliRunner().invoke(app, ["round", str(tmp_path / "server"), str(folders[0])])
        assert done.exit_code == 1
        note_failure(folders[0], "<b>the disk is full")
        shown = [page.content().html for page in pages]
        assert all('<section id="failed">' in html for html in shown)
        assert "&lt;b&gt;the disk is full" in shown[1]
        assert "came to nothing" not in report_of(tmp_path / "server")[1] + report_of(folders[0])[1]
        clock.moment += timedelta(minutes=1)
        directories.run(tmp_path / "server", folders)
        assert not any("came to nothing" in page.content().html for page in pages)


# -- the command -----------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    program = "from fedforget.cli.main import app; app()"
    return [sys.executable, "-c", program, *arguments]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that serves, until it is told to stop; that is its normal end."""
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@pytest.mark.parametrize("kind", ["server", "client"])
def test_the_command_serves_on_loopback(kind: str, root: Path) -> None:
    folder = root / ("server" if kind == "server" else "client-0")
    with started(kind, "page", str(folder), "--serve", "--port", "0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(rf"The {kind}'s page, live: http://127\.0\.0\.1:(\d+)/\n", line)
        assert found is not None, (line, process.stderr)
        assert asked(int(found[1]), "/content")[0].status == 200
    # uvicorn ends by the signal that it was told to end with.
    assert process.returncode in (0, -signal.SIGTERM)


def test_the_command_makes_a_token_and_logs_it_nowhere(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with started(
        "server", "page", str(root / "server"), "--serve", "--port", "0", "--address", "0.0.0.0",
        "--token-file", str(file),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        port = int(line.split(":")[-1].split("/")[0])
        token = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert asked(port, "/content")[0].status == 403
        assert asked(port, "/content", Authorization=f"Bearer {token}")[0].status == 200
        process.send_signal(signal.SIGTERM)
        said = line + process.stdout.read() + process.stderr.read()
    assert token not in said
    assert "Not encrypted" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--address", "0.0.0.0"), "give --token-file FILE"),
        (("--token",), "give --token-file FILE"),
        (("--address", "centre.example"), "is not an address"),
    ],
)
def test_the_command_refuses_in_plain_words(
    arguments: tuple[str, ...], words: str, root: Path
) -> None:
    folder = str(root / "server")
    done = CliRunner().invoke(app, ["server", "page", folder, "--serve", *arguments])
    assert done.exit_code == 1
    assert words in done.output


def test_the_wrong_directory_is_refused(root: Path) -> None:
    done = CliRunner().invoke(app, ["client", "page", str(root / "server"), "--serve"])
    assert done.exit_code == 1
    assert "is a server's directory, not a client's" in done.output


def test_without_serve_the_page_is_written(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["server", "page", str(root / "server"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
