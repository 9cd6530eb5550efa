"""The live page in a real browser, while a real round runs and a member is killed."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import Tab, browser, tab
from live_world import TOWNS, led_round, make_federation
from test_page_server import served

from fedforget.cli.page_server import new_token
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import preset
from fedforget.parties.server_party import open_server
from fedforget.runtime import directories

CHECKED = "#facts .good"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@contextmanager
def looking(chromium: Any, address: str, size: str, scheme: str = "light") -> Iterator[Tab]:
    with tab(chromium, size, scheme) as one:
        one.page.set_default_timeout(60_000)
        one.page.goto(address)
        one.page.locator(CHECKED).wait_for()
        yield one
        one.check()
        # Everything came from here.
        assert all(url.startswith(address) for url in one.asked)


def test_a_round_is_followed_and_a_killed_member_is_seen(chromium: Any, tmp_path: Path) -> None:
    folders = dict(zip(TOWNS, make_federation(tmp_path, records=60), strict=True))
    server = tmp_path / "server"
    directories.run(server, list(folders.values()))
    with (
        served(server) as port,
        looking(chromium, f"http://127.0.0.1:{port}/", "screen") as screen,
        looking(chromium, f"http://127.0.0.1:{port}/", "phone", "dark") as phone,
    ):
        tabs = (screen, phone)

        def see(where: str, words: str) -> None:
            for one in tabs:
                one.page.locator(where, has_text=words).first.wait_for()
                one.check()

        see("#under-way", "None.")
        loaded = [one.page.evaluate("performance.timeOrigin") for one in tabs]
        with led_round(server, folders) as led:
            led.let(2)
            see("#under-way", "Answered: 2 of 5; waiting for Coimbra, Dresden, Évora.")
            see("#under-way .now", "who is there?")
            led.let(3 + 5 + 3)
            see("#under-way .done", "keys")
            see("#under-way .now", "shares")
            see("#under-way", "Answered: 3 of 5; waiting for Dresden, Évora.")
            led.members["Dresden"].kill()
            led.let(2)
            see("#under-way .now", "masked inputs")
            see("#under-way", "No answer: Dresden (since the stage “shares”)")
            led.let(2)
            see("#under-way", "Answered: 2 of 4; waiting for Coimbra, Évora.")
        assert led.error is None
        assert "Dresden" not in led.result.result.survivors
        see("#under-way", "None.")
        see("#rounds tr.absent", "Dresden")
        see("#members tr.absent", "missing in the last round")
        see("#drift", "no centre has moved")
        see("#facts", "Dresden")
        # All of that without reloading.
        assert loaded == [one.page.evaluate("performance.timeOrigin") for one in tabs]
        for one in tabs:
            one.page.locator(CHECKED).wait_for()


def test_a_round_that_fails_is_shown(chromium: Any, tmp_path: Path) -> None:
    folders = dict(zip(TOWNS, make_federation(tmp_path, records=60), strict=True))
    server = tmp_path / "server"
    directories.run(server, list(folders.values()))
    with (
        served(server) as port,
        looking(chromium, f"http://127.0.0.1:{port}/", "phone") as phone,
    ):
        with led_round(server, folders) as led:
            led.let(5 + 5)
            phone.page.locator("#under-way .now", has_text="shares").wait_for()
            for name in ("Aarhus", "Coimbra"):
                led.members[name].kill()
        assert led.error is not None
        phone.page.locator("#trouble td", has_text="failed").first.wait_for()
        phone.page.locator("#under-way", has_text="None.").wait_for()


def test_a_server_that_is_killed_leaves_a_round_that_was_cut_off(
    chromium: Any, tmp_path: Path
) -> None:
    import msgspec

    from fedforget.parties.round_progress import FILE, StageProgress, StoredProgress

    make_federation(tmp_path, TOWNS[:3], records=20)
    stage = StageProgress("share", time.time(), ("Aarhus", "Bologna"), ("Aarhus",))
    progress = StoredProgress(1, time.time(), "full", 1, (stage,), {"<b>x": "<i>refused"}, 1)
    with (
        served(tmp_path / "server") as port,
        looking(chromium, f"http://127.0.0.1:{port}/", "screen") as screen,
    ):
        (tmp_path / "server" / FILE).write_bytes(msgspec.json.encode(progress))
        (tmp_path / "server" / FILE).chmod(0o600)
        screen.page.locator("#under-way", has_text="was cut off").wait_for()
        screen.page.locator("#under-way", has_text="no answer from Bologna").wait_for()
        screen.page.locator("#under-way", has_text="<b>x: <i>refused").wait_for()
        assert screen.page.locator("#under-way b, #under-way i").count() == 0


@pytest.mark.parametrize("size", ["screen", "phone"])
def test_a_clients_page_follows_its_requests(chromium: Any, size: str, tmp_path: Path) -> None:
    rules = preset("omop", 0.01)
    folders = make_federation(tmp_path, TOWNS[:3], records=60, disclosure=rules)
    directories.run(tmp_path / "server", folders)
    with (
        served(folders[0], "client") as port,
        looking(chromium, f"http://127.0.0.1:{port}/", size) as one,
    ):
        one.page.locator("#requests", has_text="None.").wait_for()
        one.page.locator("#rules", has_text="no cluster of fewer than 5 records").wait_for()
        with open_client(folders[0]) as client:
            name = client.forget(["A-3", "A-4"]).request
        one.page.locator("#requests td", has_text=name).wait_for()
        one.check()
        directories.run(tmp_path / "server", folders)
        one.page.locator("#receipts td", has_text=name).wait_for()
        one.page.locator("#requests", has_text="None.").wait_for()


def test_what_the_reader_has_opened_stays_open(chromium: Any, tmp_path: Path) -> None:
    """A fold and a table's offset survive a change of their section."""
    features = [(f"feature number {number}", 0.0, 1.0) for number in range(20)]
    folders = make_federation(tmp_path, TOWNS[:3], features=features, records=60)
    directories.run(tmp_path / "server", folders)
    with (
        served(tmp_path / "server") as port,
        looking(chromium, f"http://127.0.0.1:{port}/", "phone") as phone,
    ):
        fold = phone.page.locator("#other-features")
        assert fold.locator("tr").count() == 1 + 8
        assert not fold.locator("table").is_visible()
        fold.locator("summary").click()
        assert fold.locator("table").is_visible()
        table = phone.page.locator("#rounds .scroll")
        table.evaluate("(one) => { one.scrollLeft = 90 }")
        before = phone.page.locator("#profiles").inner_html()
        with open_client(folders[0]) as client:
            client.forget([f"A-{row}" for row in range(30)])
        directories.run(tmp_path / "server", folders)
        phone.page.locator("#rounds tbody tr").nth(1).wait_for()
        assert phone.page.locator("#profiles").inner_html() != before
        assert fold.locator("table").is_visible()
        assert table.evaluate("(one) => one.scrollLeft") == 90


def test_a_page_that_is_gone_says_so(chromium: Any, tmp_path: Path) -> None:
    make_federation(tmp_path, TOWNS[:3], records=20)
    with tab(chromium, "phone") as phone:
        with served(tmp_path / "server") as port:
            phone.page.goto(f"http://127.0.0.1:{port}/")
            phone.page.locator("h1", has_text="heart study").wait_for()
        phone.page.locator("#problem", has_text="cannot be reached").wait_for()
        assert phone.page.locator("h1").inner_text() == "heart study"


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_token_opens_the_page(chromium: Any, by_hand: bool, tmp_path: Path) -> None:
    make_federation(tmp_path, TOWNS[:3], records=20)
    token = new_token()
    with served(tmp_path / "server", token=token) as port, tab(chromium, "phone") as phone:
        address = f"http://127.0.0.1:{port}/"
        if by_hand:
            phone.page.goto(address)
            phone.page.locator("#problem", has_text="A token is needed.").wait_for()
            assert "heart study" not in phone.page.content()
            phone.page.locator("#token").fill("nonsense")
            phone.page.locator("#enter button").click()
            phone.page.locator("#problem", has_text="not the one").wait_for()
            phone.page.locator("#token").fill(token)
            phone.page.locator("#enter button").click()
        else:
            phone.page.goto(f"{address}#token={token}")
        phone.page.locator("h1", has_text="heart study").wait_for()
        # It is in no address that is sent, or kept in the history.
        assert phone.page.url == address
        assert not any(token in url for url in phone.asked)
        phone.page.reload()
        phone.page.locator("h1", has_text="heart study").wait_for()
        refused = [said for said in phone.wrong if "403" not in said]
        assert not refused


def test_foreign_script_does_not_run(chromium: Any, tmp_path: Path) -> None:
    """The policy holds, should markup ever get through."""
    make_federation(tmp_path, TOWNS[:3], records=20)
    with served(tmp_path / "server") as port, tab(chromium) as one:
        one.page.goto(f"http://127.0.0.1:{port}/")
        one.page.locator("h1").wait_for()
        tried = one.page.evaluate(
            """() => {
              const found = [];
              try { document.body.innerHTML = "<img src=x onerror='window.hit = 1'>"; }
              catch (error) { found.push(error.name); }
              const script = document.createElement("script");
              try { script.text = "window.hit = 1"; document.head.append(script); }
              catch (error) { found.push(error.name); }
              return [found, window.hit ?? null];
            }"""
        )
        assert tried == [["TypeError", "TypeError"], None]


# -- many members, many rounds, many clusters ------------------------------------------------------


@pytest.mark.parametrize("size", ["screen", "phone"])
def test_a_year_of_a_large_federation_fits(chromium: Any, size: str, tmp_path: Path) -> None:
    """Four hundred nightly rounds of forty members: one line for each, nothing covered."""
    from fedforget.cli import server_page
    from fedforget.cli.directory_page import page_of
    from fedforget.cli.log_rows import rounds_of

    folders = make_federation(tmp_path, TOWNS[:3], records=60, clusters=6)
    directories.run(tmp_path / "server", folders)
    with open_server(tmp_path / "server") as server:
        values = server_page.server_values(server)
    names = [f"hospital number {number}" for number in range(40)]
    log: list[dict[str, Any]] = [
        {
            "kind": "epoch",
            "time": "2030-01-01T00:00:00+00:00",
            "body": {"epoch": 1, "members": dict.fromkeys(names, "00")},
        }
    ]
    for number in range(1, 401):
        gone = names[: number % 7 * 3]
        body = values["rounds"][0].body | {
            "round": number,
            "participants": [name for name in names if name not in gone],
            "changed_bins": 997 * number % 5000,
            "kind": "full" if number % 90 == 1 else "delta",
        }
        day = (number - 1) % 360
        time_ = f"2030-{1 + day // 30:02d}-{1 + day % 30 % 28:02d}T02:30:00+00:00"
        log.append({"kind": "round", "time": time_, "body": body})
    rounds = rounds_of(log)
    assert rounds[-1].absent == tuple(sorted(names[:3]))
    recent = rounds[-server_page.MOST_ROUNDS :]
    values |= {
        "rounds": recent,
        "left_out": len(rounds) - len(recent),
        "charts_of_rounds": server_page.charts_of(recent, True),
    }
    path = tmp_path / "page.html"
    path.write_text(page_of("server", values), encoding="utf-8")
    with tab(chromium, size) as one:
        one.page.goto(path.as_uri())
        one.check()
        heights = one.page.evaluate(
            "() => [...document.querySelectorAll('#rounds tbody tr')].map((row) =>"
            " Math.round(row.getBoundingClientRect().height))"
        )
        assert len(heights) == server_page.MOST_ROUNDS
        assert max(heights) - min(heights) <= 2
        assert max(heights) < 45
        labels = one.page.locator("#rounds svg text:visible").all_text_contents()
        assert [text for text in labels if re.fullmatch(r"\d+ [A-Z][a-z]{2}", text)]


def scroll_hint(one: Tab) -> bool:
    """Whether a table that goes on to the right looks otherwise there than at its end."""
    page = one.page
    box = page.locator("#rounds .scroll")
    box.scroll_into_view_if_needed()

    def edge() -> bytes:
        found = box.bounding_box()
        clip = {"x": found["x"] + found["width"] - 6, "y": found["y"] + 4, "width": 6, "height": 20}
        return bytes(page.screenshot(clip=clip))

    before = edge()
    box.evaluate("(one) => { one.scrollLeft = one.scrollWidth }")
    return edge() != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_on_a_phone_show_that_they_scroll(
    chromium: Any, scheme: str, tmp_path: Path
) -> None:
    folders = make_federation(tmp_path, TOWNS[:3], records=20)
    directories.run(tmp_path / "server", folders)
    with (
        served(tmp_path / "server") as port,
        looking(chromium, f"http://127.0.0.1:{port}/", "phone", scheme) as phone,
    ):
        assert phone.page.locator("#rounds .scroll").evaluate(
            "(one) => one.scrollWidth > one.clientWidth"
        )
        assert scroll_hint(phone)


@pytest.mark.parametrize("clusters", [1, 12, 40])
@pytest.mark.parametrize("size", ["screen", "phone"])
def test_labels_of_clusters_never_cover_each_other(
    chromium: Any, clusters: int, size: str, tmp_path: Path
) -> None:
    folders = make_federation(tmp_path, TOWNS[:3], records=150, clusters=clusters)
    directories.run(tmp_path / "server", folders)
    from fedforget.cli.directory_page import report_of

    path = tmp_path / "page.html"
    path.write_text(report_of(tmp_path / "server")[1], encoding="utf-8")
    with tab(chromium, size) as one:
        one.page.goto(path.as_uri())
        one.check()


def test_many_readers_at_once(tmp_path: Path) -> None:
    """The page of a round under way is asked for by many, and the round commits all the same."""
    from test_page_server import asked

    folders = make_federation(tmp_path, TOWNS[:3], records=30)
    directories.run(tmp_path / "server", folders)
    with served(tmp_path / "server") as port:
        stop = threading.Event()
        statuses: set[int] = set()

        def look() -> None:
            while not stop.is_set():
                statuses.add(asked(port, "/content")[0].status)

        readers = [threading.Thread(target=look) for _ in range(6)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(3):
                directories.run(tmp_path / "server", folders)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
    assert statuses == {200}
