"""A directory that is in use for a moment is waited for; other troubles are told at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.folders import FolderError, FolderInUseError
from fedforget.runtime.flower.patience import patiently


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ClientParty.create(tmp_path / "aarhus", "Aarhus")
    return tmp_path / "aarhus"


def test_a_command_that_ends_is_waited_for(folder: Path) -> None:
    opened, close = threading.Event(), threading.Event()

    def command() -> None:
        with open_client(folder):
            opened.set()
            close.wait(10)

    thread = threading.Thread(target=command)
    thread.start()
    assert opened.wait(10)
    threading.Timer(0.5, close.set).start()
    begin = time.monotonic()
    with patiently(open_client, folder) as client:
        assert client.name == "Aarhus"
        assert time.monotonic() - begin > 0.4
    thread.join()


def test_a_command_that_does_not_end_is_not_waited_for_for_ever(folder: Path) -> None:
    with (
        open_client(folder),
        pytest.raises(FolderInUseError, match="in use by another process"),
        patiently(open_client, folder, seconds=0.3),
    ):
        pass


def test_what_waiting_does_not_mend_is_told_at_once(folder: Path) -> None:
    folder.chmod(0o755)
    begin = time.monotonic()
    with pytest.raises(FolderError, match="chmod 700"), patiently(open_client, folder):
        pass
    assert time.monotonic() - begin < 5
