"""How much a fresh environment takes on the disk: virtual environments, filled by pip.

Needs a package index.  ``[flower]`` is left out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import common

import figures

ROOT = Path(__file__).parents[1]
LARGEST = ("llvmlite", "pyarrow", "scipy", "numpy", "sklearn")


def megabytes(*folders: Path) -> float:
    """As ``du`` counts them; a library beside a package (``numpy.libs``) is a part of it."""
    files = {path for folder in folders for path in folder.rglob("*") if not path.is_symlink()}
    return sum(path.stat().st_blocks * 512 for path in files if path.is_file()) / 2**20


def installed(folder: Path, what: str) -> Path:
    """Install into a new environment; returns the folder of its packages."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    quiet = ("-q", "--disable-pip-version-check", "--no-cache-dir")
    constraints = ("-c", str(ROOT / "constraints.txt"))
    subprocess.run([python, "-m", "pip", "install", *quiet, *constraints, what], check=True)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.check_output(asked, text=True).strip())


def main() -> None:
    given = figures.parser(__doc__).parse_args()
    common.heading("size on disk")
    shown = common.table("a fresh environment", "what", "MB")
    with figures.kept(given), tempfile.TemporaryDirectory() as name:
        # A quick run looks at an environment with pip alone.
        wanted = {} if given.quick else {"core": f"{ROOT}", "bench": f"{ROOT}[bench]"}
        for label, what in wanted.items():
            packages = installed(Path(name) / label, what)
            size = megabytes(Path(name) / label)
            figures.record(label, megabytes=size)
            shown.add_row(label, f"{size:.0f}")
            if label == "core":
                for package in LARGEST:
                    part = megabytes(packages / package, packages / f"{package}.libs")
                    figures.record(package, megabytes=part)
                    shown.add_row(f"  {package}", f"{part:.0f}")
    common.console.print(shown)


if __name__ == "__main__":
    main()
