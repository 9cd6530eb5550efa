"""Units of systemd: what they say, and what systemd says of them."""

from __future__ import annotations

import contextlib
import grp
import gzip
import json
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedforget.cli.main import app

CENTRE = ("--server", "/var/lib/fedforget/server", "--app", "/srv/fedforget/app")
SITE = ("--clients", "/var/lib/fedforget/aarhus", "--app", "/srv/fedforget/app")
BOTH = ("--server", "/srv/x/server", "--clients", "/srv/x/aarhus", "--clients", "/srv/x/bologna")
ODD = (
    "--server",
    "/srv/a b/ser%ver",
    "--clients",
    "/home/o'hara/c$1",
    "--clients",
    '/tmp/q"uo\\te',
)


def call(folder: Path, *arguments: str) -> Result:
    with contextlib.chdir(folder):
        return CliRunner(env={"COLUMNS": "300"}).invoke(app, ["units", "-o", "out", *arguments])


def written(folder: Path, *arguments: str) -> dict[str, str]:
    """The files, by name."""
    done = call(folder, *arguments, "--json")
    assert done.exit_code == 0, done.output
    names = json.loads(done.stdout)["files"]
    assert sorted(names) == sorted(path.name for path in (folder / "out").iterdir())
    return {name: (folder / "out" / name).read_text() for name in names}


def values(text: str, key: str) -> list[str]:
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(f"{key}=")]


def test_a_server_alone_has_no_timer_for_rounds(tmp_path: Path) -> None:
    for at, (options, missing) in enumerate(((CENTRE[:2], True), (CENTRE, False), (BOTH, False))):
        (folder := tmp_path / str(at)).mkdir()
        shown = call(folder, *options).output
        assert ("There is no timer for rounds: --app makes one" in shown) == missing
        assert (folder / "out" / "fedforget-round.timer").exists() != missing


def test_a_centre(tmp_path: Path) -> None:
    files = written(tmp_path, *CENTRE, "--every", "24h", "--at", "02:30")
    assert set(files) == {
        "fedforget-superlink.service",
        "fedforget-gate.service",
        "fedforget-round.service",
        "fedforget-round.timer",
        "fedforget-status-server.service",
        "fedforget-status-server.timer",
        "fedforget-alarm@.service",
        "fedforget.sysusers.conf",
        "fedforget.logrotate",
        "INSTALL.txt",
    }
    assert values(files["fedforget-round.timer"], "OnCalendar") == ["*-*-* 02:30:00"]
    assert values(files["fedforget-round.timer"], "Persistent") == ["true"]
    (command,) = values(files["fedforget-round.service"], "ExecStart")
    assert "flower round /srv/fedforget/app --server /var/lib/fedforget/server" in command
    assert "fedforget/server" in values(files["fedforget-superlink.service"], "StateDirectory")
    assert "127.0.0.1" in files["fedforget-superlink.service"]
    assert "/var/lib/fedforget/server/flower.jsonl" in files["fedforget.logrotate"]


def test_a_site(tmp_path: Path) -> None:
    files = written(tmp_path, *SITE, "--superlink", "superlink.example.org:9092")
    (command,) = values(files["fedforget-supernode-aarhus.service"], "ExecStart")
    assert "--superlink superlink.example.org:9092" in command
    assert r'"client=\"/var/lib/fedforget/aarhus\""' in command
    assert "fedforget-round.service" not in files
    assert "client status" in files["fedforget-status-aarhus.service"]


def test_rounds_over_directories(tmp_path: Path) -> None:
    files = written(tmp_path, *BOTH, "--metrics", "/var/lib/collector")
    (command,) = values(files["fedforget-round.service"], "ExecStart")
    assert "round /srv/x/server /srv/x/aarhus /srv/x/bologna --tries 8 --wait 10m" in command
    assert "PrivateNetwork=yes" in files["fedforget-round.service"]
    assert values(files["fedforget-round.timer"], "OnUnitActiveSec") == ["86400s"]
    status = files["fedforget-status-bologna.service"]
    assert "--metrics /var/lib/collector/fedforget-bologna.prom" in status


@pytest.mark.parametrize(
    "options", [CENTRE, SITE, BOTH, ODD], ids=["centre", "site", "both", "odd"]
)
def test_every_service_is_hardened(tmp_path: Path, options: tuple[str, ...]) -> None:
    for name, text in written(tmp_path, *options).items():
        if not name.endswith(".service") or name == "fedforget-alarm@.service":
            continue
        for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "User=fedforget", "UMask=0077",
                     "CapabilityBoundingSet=", "StandardOutput=journal"):  # fmt: skip
            assert line in text.splitlines(), (name, line)
        assert "MemoryDenyWriteExecute" not in text, "kernels are compiled in memory"


@pytest.mark.parametrize(
    ("every", "at", "calendar"),
    [
        ("12h", "02:30", "*-*-* 02,14:30:00"),
        ("8h", "20:05", "*-*-* 04,12,20:05:00"),
        ("1h", "00:15", f"*-*-* {','.join(f'{hour:02d}' for hour in range(24))}:15:00"),
    ],
)
def test_parts_of_a_day(tmp_path: Path, every: str, at: str, calendar: str) -> None:
    files = written(tmp_path, *BOTH, "--every", every, "--at", at)
    assert values(files["fedforget-round.timer"], "OnCalendar") == [calendar]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "say --server"),
        (("--clients", "/a"), "--app"),
        ((*BOTH, "--every", "7d", "--at", "02:30"), "a timer cannot"),
        ((*BOTH, "--user", "root; rm"), "cannot be the name of an account"),
        ((*SITE, "--superlink", "x y"), "HOST:PORT"),
        (("--server", "/srv/a\nExecStart=/bin/evil", "--clients", "/b"), "printable"),
        (("--server", "/a", "--clients", "/b/x", "--clients", "/c/x"), "same name"),
    ],
)
def test_what_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = call(tmp_path, *options)
    assert done.exit_code == 1
    assert said in done.output
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    written(tmp_path, *BOTH)
    done = call(tmp_path, *BOTH)
    assert done.exit_code == 1
    assert "exists already" in done.output


def verified(folder: Path) -> str:
    """What systemd says of units; nothing, if they are right."""
    units = [
        str(path) for path in sorted(folder.glob("*.service")) + sorted(folder.glob("*.timer"))
    ]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    # It also looks at units of the machine, which are not ours.
    ours = [line for line in done.stderr.splitlines() if "fedforget" in line]
    return "\n".join(ours)


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@needs_systemd
@pytest.mark.parametrize(
    "options", [CENTRE, SITE, BOTH, ODD], ids=["centre", "site", "both", "odd"]
)
def test_systemd_finds_nothing_wrong(tmp_path: Path, options: tuple[str, ...]) -> None:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if options == CENTRE and nginx is None:
        pytest.skip("nginx is not installed; systemd would miss the gate's program")
    written(tmp_path, *options, "--every", "12h", "--at", "02:30")
    assert verified(tmp_path / "out") == ""


@needs_systemd
def test_systemd_would_find_something_wrong(tmp_path: Path) -> None:
    written(tmp_path, *BOTH)
    path = tmp_path / "out" / "fedforget-round.service"
    path.write_text(path.read_text().replace("Type=oneshot", "Type=sometimes"))
    assert "sometimes" in verified(tmp_path / "out")


@needs_systemd
def test_odd_paths_arrive_as_they_are(tmp_path: Path) -> None:
    """systemd's own reader takes the command line apart."""
    words: dict[str, Any] = written(tmp_path, *ODD)
    (command,) = values(words["fedforget-round.service"], "ExecStart")
    assert "ser%%ver" in command
    assert "c$$1" in command
    assert r'"/tmp/q\"uo\\te"' in command


LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed")
@pytest.mark.parametrize("name", ["server", 'a b\'s "server"'])
def test_the_log_of_runs_is_rotated(tmp_path: Path, name: str) -> None:
    """By logrotate itself: the old lines are put aside, and a new file is its owner's alone."""
    assert LOGROTATE is not None
    user = pwd.getpwuid(os.getuid()).pw_name
    if grp.getgrgid(os.getgid()).gr_name != user:
        pytest.skip("the snippet takes a group of the account's name, and this account has none")
    server = tmp_path / name
    server.mkdir(mode=0o700)
    log = server / "flower.jsonl"
    written(tmp_path, "--server", str(server), "--app", "/srv/fedforget/app", "--user", user)
    snippet = tmp_path / "out" / "fedforget.logrotate"
    snippet.chmod(0o644)

    def rotate(*options: str) -> str:
        command = [LOGROTATE, *options, "--state", str(tmp_path / "state"), str(snippet)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stderr
        return done.stderr

    rotate("--force")  # there is no log yet
    for number, lines in enumerate(("first\n", "second\n", "third\n")):
        log.write_text(lines)
        log.chmod(0o600)
        assert "flower.jsonl" in rotate("--debug", "--force")
        assert log.read_text() == lines, "a trial changes nothing"
        rotate("--force")
        assert log.read_text() == ""
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert (server / "flower.jsonl.1").read_text() == lines, number
    assert gzip.decompress((server / "flower.jsonl.2.gz").read_bytes()) == b"second\n"
