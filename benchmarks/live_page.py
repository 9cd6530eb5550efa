"""How long a live page takes to open: the page of a server or a client that has run for a while.

``python benchmarks/live_page.py server/`` starts ``fedforget server page server/ --serve`` three
times, as an operator does, and asks for what a browser asks for.  Nothing in the directory is
changed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

START = "from fedforget.cli.main import app; app(prog_name='fedforget')"


def processor_seconds(process: int) -> float:
    """What a process has used until now, all threads together."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def opened(folder: Path, kind: str) -> dict[str, float]:
    """One start and one look: processor seconds, and how long the browser waited."""
    command = [sys.executable, "-c", START, kind, "page", str(folder), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            address = re.search(r"http://\S+/", line)
            assert address, line
            found = {"until it listens": processor_seconds(server.pid)}
            begin = time.perf_counter()
            for path in ("", "page.css", "live.js", "content"):
                with urlopen(address[0] + path, timeout=60) as answer:
                    answer.read()
            found["wall seconds from the first request to the page"] = time.perf_counter() - begin
            found["with the first page"] = processor_seconds(server.pid)
            while "being checked" in urlopen(address[0] + "content").read().decode():
                time.sleep(0.2)
            found["with the audit and the curve"] = processor_seconds(server.pid)
            return found
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    kind = "server" if (given.folder / "server.sqlite").exists() else "client"
    looks = [opened(given.folder, kind) for _ in range(given.times)]
    print(f"the page of a {kind}, processor seconds, least of {given.times}")
    for name in looks[0]:
        print(f"  {name:50} {min(one[name] for one in looks):6.2f}")


if __name__ == "__main__":
    main()
