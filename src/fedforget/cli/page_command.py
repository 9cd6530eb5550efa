"""``fedforget server page`` and ``fedforget client page``: a page, written once or served live."""

from __future__ import annotations

import sys
from pathlib import Path

from fedforget.cli.console import console, messages, plain_errors, safe
from fedforget.cli.extras import check_extra
from fedforget.errors import FedforgetError
from fedforget.parties.reading import PartyKind


def show_page(
    folder: Path,
    kind: PartyKind,
    serve: bool,
    out: Path,
    address: str,
    port: int,
    token: bool,
    token_file: Path | None,
    names: list[str] | None,
) -> None:
    """Write the page of a directory, or serve it."""
    with plain_errors():
        from fedforget.parties.reading import check_readable

        check_readable(folder, kind)
        if serve:
            check_extra("page", f"{kind} page --serve")
    if serve:
        _serve(folder, kind, address, port, token, token_file, names or [])
        return
    from fedforget.cli.directory_page import write_report

    write_report(folder, out, as_json=False)


def _serve(
    folder: Path,
    kind: PartyKind,
    address: str,
    port: int,
    wanted: bool,
    token_file: Path | None,
    names: list[str],
) -> None:
    from fedforget.cli.choose_command import losses_of
    from fedforget.cli.live_page import LivePage
    from fedforget.cli.page_server import Guard, listening, new_token, serve
    from fedforget.parties.folders import write_private

    with plain_errors():
        known = tuple(name.rstrip(".").lower() for name in names)
        open_one = Guard(address, known)
        needed = wanted or token_file is not None or not open_one.is_loopback
        if needed and token_file is None and not sys.stdout.isatty():
            raise FedforgetError(
                "the token would be printed into a log or a pipe: give --token-file FILE"
            )
        guard = Guard(address, known, new_token() if needed else None)
        live = LivePage(folder, kind, losses_of if kind == "server" else None)
        where = listening(address, port)
        shown = f"[{address}]" if ":" in address else address
        place = f"http://{shown}:{where.getsockname()[1]}/"
        if guard.token is not None and token_file is not None:
            write_private(token_file, f"{guard.token}\n".encode())
            place += f" (token in {token_file})"
        elif guard.token is not None:
            # After the #, so that the browser sends it to nobody and no proxy logs it.
            place += f"#token={guard.token}"
        console.print(f"The {kind}'s page, live: {safe(place)}", soft_wrap=True)
        if not guard.is_loopback:
            messages.print(
                "[yellow]Not encrypted:[/] whoever can listen on the way sees the page and the"
                " token. Use loopback and ssh, or a proxy with TLS.",
                soft_wrap=True,
            )
        sys.stdout.flush()
    serve(live, guard, [where])
