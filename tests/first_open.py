"""Opens a live page for the first time, in a process of its own, and says what that took.

Not how long: a clock says as much about the machine as about the page.  What makes a first look
slow is loading compilers and libraries, and work that grows with every round that ever was.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

SLOW = {"flint", "flwr", "joblib", "llvmlite", "matplotlib", "numba", "pandas", "pyarrow", "scipy",
        "sklearn", "threadpoolctl"}  # fmt: skip

PROGRAM = """
import json
import sys
from pathlib import Path

folder, kind, *slow = sys.argv[1:]

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in slow:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from fedforget.cli.choose_command import losses_of
from fedforget.cli.live_page import LivePage
from fedforget.cli.page_server import Guard, make_app
from fedforget.parties.database import Database

statements, asked = 0, Database.execute

def counted(self, *given):
    global statements
    statements += 1
    return asked(self, *given)

Database.execute = counted
live = LivePage(Path(folder), kind, losses_of if kind == "server" else None)
make_app(live, Guard("127.0.0.1"))
page = live.content().html
print(json.dumps({"page": page, "statements": statements}))
"""


def first_open(folder: Path, kind: Literal["server", "client"]) -> dict[str, Any]:
    """The page of a process in which nothing slow can be loaded, and how often it asked the store.

    The audit and the curve come after it, in a thread that this process does not wait for.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), kind, *sorted(SLOW)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
