"""A PostgreSQL server of the tests' own: on a socket in a folder of its own, gone afterwards.

The server refuses to run as root.  Under root it is run as the user that Debian's package makes.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

_PACKAGE_USER = "postgres"
_PROGRAMS = Path("/usr/lib/postgresql")


class NoServerError(Exception):
    """Why no server can be started here."""


@dataclass(frozen=True)
class Postgres:
    """A server that runs."""

    programs: Path
    folder: Path
    password: str

    @property
    def sockets(self) -> Path:
        return self.folder

    def uri(
        self,
        database: str = "postgres",
        *,
        user: str = "postgres",
        password: str | None = None,
    ) -> str:
        """An address with a password; that of the user ``postgres`` if none is given."""
        given = self.password if password is None else password
        who = f"{user}:{quote(given, safe='')}"
        return f"postgresql://{who}@/{database}?host={quote(str(self.sockets), safe='')}"

    def environment(self, database: str = "postgres", **more: str) -> Mapping[str, str]:
        """Variables with which a client finds the server; without a password."""
        place = {"PGHOST": str(self.sockets), "PGUSER": "postgres", "PGDATABASE": database}
        return place | more

    def run(self, sql: str, database: str = "postgres") -> str:
        """What psql prints for some SQL: values only."""
        command = [str(self.programs / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        done = subprocess.run(
            command,
            input=sql,
            env={**os.environ, **self.environment(database, PGPASSWORD=self.password)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def database(self, schema: str = "") -> Iterator[str]:
        """A new database; it is dropped with all its connections."""
        name = f"d{secrets.token_hex(6)}"
        self.run(f"CREATE DATABASE {name}")
        try:
            self.run(schema, name)
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")


def programs() -> Path:
    """Where the newest server is installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = [path.parent for path in _PROGRAMS.glob("*/bin/initdb")]
    if not versions:
        raise NoServerError("PostgreSQL is not installed here (Debian: apt-get install postgresql)")
    return max(versions, key=lambda folder: float(folder.parent.name))


def _switch() -> tuple[list[str], str | None]:
    """How to start a program that refuses root and ends with its parent; which user it then is."""
    setpriv = shutil.which("setpriv")
    ending = [] if setpriv is None else [setpriv, "--pdeathsig", "QUIT"]
    if os.geteuid() != 0:
        return ending, None
    try:
        pwd.getpwnam(_PACKAGE_USER)
    except KeyError:
        raise NoServerError(
            f"PostgreSQL refuses to run as root, and there is no user {_PACKAGE_USER}"
        ) from None
    if setpriv is None:
        raise NoServerError("PostgreSQL refuses to run as root, and there is no setpriv")
    user = f"--reuid={_PACKAGE_USER}", f"--regid={_PACKAGE_USER}", "--init-groups"
    return [*ending, *user], _PACKAGE_USER


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server, and stop it at the end; it also ends if this process is killed.

    Raises
    ------
    NoServerError
        If there is none that can be started; the message says why.
    """
    where = programs()
    switch, user = _switch()
    # A socket's path has at most 107 characters, so that the folder cannot be just anywhere.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        server = Postgres(where, folder, secrets.token_hex(8))
        secret = folder / "password"
        secret.write_text(server.password)
        if user is not None:
            shutil.chown(folder, user)
            shutil.chown(secret, user)
        data = folder / "data"
        login = "--auth-local=scram-sha-256", "--auth-host=reject", f"--pwfile={secret}"
        made = ("-D", data, "-U", "postgres", "-E", "UTF8", "--no-locale", "-N", *login)
        _run([*switch, where / "initdb", *made], folder)
        settings = ("listen_addresses=", "fsync=off", "max_connections=20")
        options = [part for one in settings for part in ("-c", one)]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*switch, where / "postgres", "-D", data, "-k", folder, *options],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_until_ready(server, process)
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(server: Postgres, process: subprocess.Popen[bytes]) -> None:
    command = [server.programs / "pg_isready", "-q", "-h", server.sockets]
    end = time.monotonic() + 120
    while subprocess.run(command, check=False).returncode != 0:
        assert process.poll() is None, (server.folder / "log").read_text()
        assert time.monotonic() < end, "the server does not answer"
        time.sleep(0.1)


def _run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for the tests of one process; they skip where there is none."""
    try:
        with running_postgres() as server:
            yield server
    except NoServerError as error:
        pytest.skip(str(error))
