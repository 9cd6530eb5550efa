"""``fedforget units``: services and timers of systemd for a centre, a site, or both."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from fedforget.cli.console import console, plain_errors, safe, show
from fedforget.errors import FedforgetError
from fedforget.runtime.flower.settings import OFFLINE_FLOWER, PROGRESS
from fedforget.runtime.timetable import DAY, Timetable, duration, time_of_day
from fedforget.wall_clock import length_in_words
from fedforget.whole_files import whole_file

STATE = Path("/var/lib")
HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
SCRATCH = tuple(map(Path, ("/tmp", "/var/tmp")))

HARDENED = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
)
"""What no service needs.  MemoryDenyWriteExecute is not here: kernels are compiled in memory."""

ROUND = "fedforget-round"


@dataclass(frozen=True)
class WantedUnits:
    """What the units are for.

    Attributes
    ----------
    server, clients : directories on this machine.
    app : Flower's app folder; without one, rounds run over the directories.
    timetable : when rounds come.
    superlink : where a site reaches the gate of the centre.
    user : under whose account everything runs.
    metrics : a folder for Prometheus' files, if there is a collector.
    programs : the folder with ``fedforget`` and Flower's programs.
    """

    server: Path | None
    clients: tuple[Path, ...]
    app: Path | None
    timetable: Timetable
    superlink: str
    user: str
    metrics: Path | None
    programs: Path
    port: int = 8000

    def program(self, name: str) -> str:
        return str(self.programs / name)


@dataclass
class Unit:
    """A file of systemd: its sections, in their order."""

    name: str
    sections: dict[str, list[str]] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join(
            line
            for section, lines in self.sections.items()
            for line in (f"[{section}]", *lines, "")
        )


def write_units(folder: Path, wanted: WantedUnits) -> list[Path]:
    """Write all files; nothing that is there is overwritten."""
    units = units_of(wanted)
    names = [one.name for one in units]
    if len(set(names)) != len(names):
        raise FedforgetError("two clients' directories have the same name; rename one of them")
    files = {one.name: one.text() for one in units}
    files |= {
        "fedforget.sysusers.conf": f'u {wanted.user} - "fedforget" {STATE / wanted.user}\n',
        "INSTALL.txt": _install(wanted, units),
    }
    if wanted.server is not None and wanted.app is not None:
        files["fedforget.logrotate"] = _logrotate(wanted, wanted.server)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with whole_file(folder / name, replace=False, private=False) as file:
                file.write(text.encode())
            written.append(folder / name)
    except FileExistsError as error:
        raise FedforgetError(f"{error.filename or folder} exists already") from None
    except OSError as error:
        raise FedforgetError(f"{folder} cannot be written: {error.strerror or error}") from None
    return written


def units_of(wanted: WantedUnits) -> list[Unit]:
    """The services and timers."""
    found: list[Unit] = []
    if wanted.server is not None:
        if wanted.app is not None:
            found += [_superlink(wanted, wanted.app), _gate(wanted, wanted.app)]
        if wanted.app is not None or wanted.clients:
            found += _round(wanted, wanted.server)
        found += _status(wanted, "server", wanted.server)
    for client in wanted.clients:
        if wanted.app is not None:
            found.append(_supernode(wanted, wanted.app, client))
        found += _status(wanted, "client", client)
    return [*found, _alarm()]


# -- the services ----------------------------------------------------------------------------------


def _superlink(wanted: WantedUnits, app: Path) -> Unit:
    keys = app / "keys"
    command = [
        wanted.program("flower-superlink"),
        *("--host", "127.0.0.1", "--port", str(wanted.port)),
        *("--ssl-ca-certfile", str(keys / "authority.pem")),
        *("--ssl-certfile", str(keys / "superlink.pem")),
        *("--ssl-keyfile", str(keys / "superlink.key")),
        "--enable-supernode-auth",
        *("--database", str(app / "superlink.sqlite")),
        "--disable-runtime-dependency-installation",
    ]
    assert wanted.server is not None
    service = _lasting(wanted, command, [wanted.server, app], network=True, app=app)
    return _service("fedforget-superlink", "SuperLink, on loopback", service, "network.target")


def _gate(wanted: WantedUnits, app: Path) -> Unit:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") or "/usr/sbin/nginx"
    command = [nginx, "-p", str(app), "-c", str(app / "nginx.conf")]
    service = _lasting(wanted, command, [app / "keys"], network=True)
    return _service(
        "fedforget-gate", "gate to the SuperLink", service, "fedforget-superlink.service"
    )


def _supernode(wanted: WantedUnits, app: Path, client: Path) -> Unit:
    name = _name_of(client)
    command = [
        wanted.program("flower-supernode"),
        *("--superlink", wanted.superlink),
        *("--root-certificates", str(app / "keys" / "authority.pem")),
        *("--auth-supernode-private-key", str(app / "keys" / "nodes" / client.name)),
        *("--host", "127.0.0.1", "--port", str(9094 + wanted.clients.index(client))),
        *("--node-config", f'client="{client}"'),
    ]
    service = _lasting(wanted, command, [client, app / "flwr"], network=True, app=app)
    return _service(
        f"fedforget-supernode-{name}", f"SuperNode of {client.name}", service, "network.target"
    )


def _round(wanted: WantedUnits, server: Path) -> list[Unit]:
    """A round that the timer starts; it tries for some hours, and its status is the truth."""
    retries = ["--tries", "8", "--wait", "10m"]
    if wanted.app is not None:
        command = [wanted.program("fedforget"), "flower", "round", str(wanted.app)]
        command += ["--server", str(server), *retries]
        paths, after = [server, wanted.app], "fedforget-superlink.service"
    else:
        clients = [str(one) for one in wanted.clients]
        command = [wanted.program("fedforget"), "round", str(server), *clients, *retries]
        paths, after = [server, *wanted.clients], "local-fs.target"
    service = [
        "Type=oneshot",
        # Eight tries, each after a longer wait, and a round itself.
        "TimeoutStartSec=6h",
        # SIGTERM ends a round between two stages.
        "KillMode=mixed",
        "TimeoutStopSec=5min",
        *_body(wanted, command, paths, network=wanted.app is not None, app=wanted.app),
    ]
    made = _service(ROUND, "a round of the federation", service, after, start=False)
    return [made, _timer(ROUND, "rounds of the federation", _calendar(wanted))]


def _status(wanted: WantedUnits, side: str, folder: Path) -> list[Unit]:
    name = "server" if side == "server" else _name_of(folder)
    command = [wanted.program("fedforget"), side, "status", str(folder), "--check"]
    paths = [folder]
    if wanted.metrics is not None:
        command += ["--metrics", str(wanted.metrics / f"fedforget-{name}.prom")]
        paths.append(wanted.metrics)
    service = ["Type=oneshot", *_body(wanted, command, paths, network=False)]
    if wanted.metrics is not None:
        # A collector runs under another account; files of a party's directory stay private.
        service = [line if line != "UMask=0077" else "UMask=0022" for line in service]
    unit = f"fedforget-status-{name}"
    made = _service(unit, f"what is overdue at {name}", service, "local-fs.target", start=False)
    when = ["OnCalendar=hourly", "RandomizedDelaySec=10min"]
    return [made, _timer(unit, f"looks what is overdue at {name}", when)]


def _alarm() -> Unit:
    """What a service that fails calls; the place for a mail or a pager."""
    text = "fedforget: %i has failed; see journalctl -u %i"
    return Unit(
        "fedforget-alarm@.service",
        {
            "Unit": ["Description=fedforget: tells that %i has failed"],
            "Service": [
                "Type=oneshot",
                "DynamicUser=yes",
                "SyslogLevel=err",
                "# Put the command here that reaches a person.",
                f'ExecStart=/bin/echo "{text}"',
            ],
        },
    )


# -- what they share -------------------------------------------------------------------------------


def _service(
    name: str, about: str, service: Sequence[str], after: str, *, start: bool = True
) -> Unit:
    sections = {
        "Unit": [
            f"Description=fedforget: {_one_line(about)}",
            f"After={after}",
            "OnFailure=fedforget-alarm@%n.service",
        ],
        "Service": list(service),
    }
    if start:
        sections["Install"] = ["WantedBy=multi-user.target"]
    return Unit(f"{name}.service", sections)


def _timer(name: str, about: str, when: Sequence[str]) -> Unit:
    return Unit(
        f"{name}.timer",
        {
            "Unit": [f"Description=fedforget: {_one_line(about)}"],
            "Timer": [*when, "AccuracySec=1min"],
            "Install": ["WantedBy=timers.target"],
        },
    )


def _lasting(
    wanted: WantedUnits,
    command: Sequence[str],
    paths: Sequence[Path],
    *,
    network: bool,
    app: Path | None = None,
) -> list[str]:
    """A service that stays; for a minute after its end a SuperLink refuses a node."""
    body = _body(wanted, command, paths, network=network, app=app)
    return ["Type=exec", "Restart=always", "RestartSec=15", *body]


def _body(
    wanted: WantedUnits,
    command: Sequence[str],
    paths: Sequence[Path],
    *,
    network: bool,
    app: Path | None = None,
) -> list[str]:
    variables = ["FEDFORGET_CACHE=%C/fedforget"]
    if app is not None:
        variables += [
            *(f"{name}={value}" for name, value in OFFLINE_FLOWER.items()),
            f"FLWR_HOME={app / 'flwr'}",
            f"PATH={wanted.programs}:/usr/bin:/bin",
        ]
    return [
        f"ExecStart={' '.join(map(_argument, command))}",
        f"User={wanted.user}",
        f"Group={wanted.user}",
        "UMask=0077",
        *(f"Environment={_quoted(one)}" for one in variables[:1]),
        *(f"Environment={_quoted(_literal(one))}" for one in variables[1:]),
        "CacheDirectory=fedforget",
        "CacheDirectoryMode=0700",
        *HARDENED,
        *_network(network),
        *_places(paths),
        "StandardOutput=journal",
        "StandardError=journal",
    ]


def _network(needed: bool) -> list[str]:
    if needed:
        return ["RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"]
    return ["PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX"]


def _places(paths: Sequence[Path]) -> list[str]:
    """Where a service may write: its own state below /var/lib, or what it is given elsewhere."""
    lines = []
    at_home = [one for one in paths if _below(one, HOMES)]
    for one in paths:
        if _below(one, (STATE,)):
            lines.append(f"StateDirectory={_quoted(_literal(str(one.relative_to(STATE))))}")
        elif one not in at_home:
            lines.append(f"ReadWritePaths={_quoted(_literal(str(one)))}")
    if any(line.startswith("StateDirectory=") for line in lines):
        lines.append("StateDirectoryMode=0700")
    lines.append(f"ProtectHome={'tmpfs' if at_home else 'yes'}")
    lines += [f"BindPaths={_quoted(_literal(str(one)))}" for one in at_home]
    lines.append(f"PrivateTmp={'no' if any(_below(one, SCRATCH) for one in paths) else 'yes'}")
    return lines


def _calendar(wanted: WantedUnits) -> list[str]:
    """The timetable in systemd's words."""
    table = wanted.timetable
    if table.at is None:
        seconds = int(table.every.total_seconds())
        return ["OnActiveSec=1min", f"OnUnitActiveSec={seconds}s"]
    if table.every == DAY:
        hours = [table.at.hour]
    elif DAY % table.every == timedelta(0) and table.every % timedelta(hours=1) == timedelta(0):
        step = table.every // timedelta(hours=1)
        hours = sorted((table.at.hour + step * one) % 24 for one in range(DAY // table.every))
    else:
        raise FedforgetError(
            f"a timer cannot run every {length_in_words(table.every)} at a set time of day: use 24h"
            " or a number of hours that divides a day, or leave --at out"
        )
    shown = ",".join(f"{hour:02d}" for hour in hours)
    return [f"OnCalendar=*-*-* {shown}:{table.at.minute:02d}:00", "Persistent=true"]


def _logrotate(wanted: WantedUnits, server: Path) -> str:
    path = str(server / PROGRESS).replace("\\", "\\\\").replace('"', '\\"')
    return (
        "# What runs over Flower have written down; journald rotates everything else.\n"
        f'"{path}" {{\n'
        f"    su {wanted.user} {wanted.user}\n"
        "    monthly\n"
        "    maxsize 10M\n"
        "    rotate 12\n"
        "    missingok\n"
        "    notifempty\n"
        "    # A command that follows a run reads the file before this one, too.\n"
        "    compress\n"
        "    delaycompress\n"
        f"    create 0600 {wanted.user} {wanted.user}\n"
        "}\n"
    )


def _install(wanted: WantedUnits, units: Iterable[Unit]) -> str:
    names = [one.name for one in units]
    timers = [name for name in names if name.endswith(".timer")]
    lasting = [
        one.name for one in units if "Install" in one.sections and not one.name.endswith(".timer")
    ]
    lines = [
        "As root, in this folder:",
        "",
        "  install -m 644 fedforget.sysusers.conf /etc/sysusers.d/fedforget.conf",
        "  systemd-sysusers",
        "  install -m 644 *.service *.timer /etc/systemd/system/",
        "  systemctl daemon-reload",
        *(f"  chown -R {wanted.user}: {_shown(path)}" for path in _all_paths(wanted)),
        *(f"  systemctl enable --now {name}" for name in (*lasting, *timers)),
    ]
    if wanted.server is not None and wanted.app is not None:
        lines.append("  install -m 644 fedforget.logrotate /etc/logrotate.d/fedforget")
    lines += [
        "",
        "A command of your own on a directory runs under the same account, for example",
        f"  sudo -u {wanted.user} {_shown(Path(wanted.program('fedforget')))} --help",
        "",
        "What happens:  journalctl -u fedforget-round     systemctl list-timers 'fedforget-*'",
        "",
    ]
    return "\n".join(lines)


def _all_paths(wanted: WantedUnits) -> Iterator[Path]:
    for path in (wanted.server, wanted.app):
        if path is not None:
            yield path
    yield from wanted.clients


def _below(path: Path, places: Iterable[Path]) -> bool:
    return any(path != place and path.is_relative_to(place) for place in places)


def _name_of(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "-", folder.name)


def _one_line(text: str) -> str:
    return _literal(" ".join(text.split()))


def _literal(text: str) -> str:
    """Text in which systemd sees no specifier."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """A word of a unit file."""
    if re.fullmatch(r"[A-Za-z0-9_./:=@%+,-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _argument(text: str) -> str:
    """A word of a command line, in which systemd replaces nothing."""
    return _quoted(_literal(text).replace("$", "$$"))


def _shown(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


# -- the command -----------------------------------------------------------------------------------


def make_units(
    out: Path,
    server: Path | None,
    clients: Sequence[Path],
    app: Path | None,
    every: str,
    at: str | None,
    superlink: str,
    user: str,
    metrics: Path | None,
    as_json: bool,
) -> None:
    """Write the units, and say how to install them."""
    with plain_errors():
        wanted = WantedUnits(
            None if server is None else _checked(server),
            tuple(map(_checked, clients)),
            None if app is None else _checked(app),
            Timetable(duration(every), None if at is None else time_of_day(at)),
            superlink,
            user,
            None if metrics is None else _checked(metrics),
            Path(sys.executable).parent,
        )
        if wanted.server is None and not wanted.clients:
            raise FedforgetError("say --server DIR, --clients DIR, or both")
        if wanted.app is None and wanted.server is None:
            raise FedforgetError(
                "clients alone take part over Flower: say --app DIR, too (fedforget flower init)"
            )
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", user):
            raise FedforgetError(f"{user!r} cannot be the name of an account")
        if not re.fullmatch(r"[A-Za-z0-9.\[\]:-]+:\d{1,5}", superlink):
            raise FedforgetError(f"--superlink {superlink!r} must have the form HOST:PORT")
        written = write_units(out, wanted)

    def in_words() -> None:
        units = [path.name for path in written if path.suffix in (".service", ".timer")]
        console.print(f"{len(units)} units are in [bold]{safe(out)}[/bold]:", soft_wrap=True)
        for name in units:
            console.print(f"  {safe(name)}")
        if wanted.server is not None and f"{ROUND}.timer" not in units:
            console.print(
                "There is no timer for rounds: --app makes one for rounds over Flower, --clients"
                " one for rounds over directories of this machine.",
                soft_wrap=True,
            )
        console.print(f"How to install them: [bold]{safe(out / 'INSTALL.txt')}[/]", soft_wrap=True)

    show({"folder": str(out), "files": [path.name for path in written]}, as_json, in_words)


def _checked(path: Path) -> Path:
    found = path.expanduser().absolute()
    if not str(found).isprintable():
        raise FedforgetError(f"{path}: a path in a unit must be printable")
    return found
