"""What a release must pass: ``make release-check``.

Builds wheel and sdist, installs each into a clean environment of every Python that is there, and
runs ``fedforget demo`` from the wheel.  Writes the licences of what is installed and a list of
components (SBOM, CycloneDX) to ``build/release``, and looks for known vulnerabilities where it can.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "release"
OLDEST = (3, 11)
NAMED = re.compile(r"python3\.\d+")
UNREACHABLE = re.compile(
    r"connection|resolve|timed? ?out|network|proxy|max retries|unreachable|forbidden|ssl", re.I
)

# Runs in the environment that is looked at, which has none of our tools.
LICENCES = """
import json
from importlib.metadata import distributions

def licence(data):
    stated = data.get("License-Expression") or (data.get("License") or "").split("\\n")[0]
    classifiers = [c for c in data.get_all("Classifier") or () if c.startswith("License")]
    known = [c.split(" :: ")[-1] for c in classifiers]
    return stated if 0 < len(stated) < 60 else ", ".join(known) or "not stated"

rows = sorted((d.metadata["Name"], d.version, licence(d.metadata)) for d in distributions())
print(json.dumps(rows))
"""


class Audit(NamedTuple):
    """What is known about vulnerabilities, of how many packages; or why nothing is known."""

    checked: int
    vulnerable: list[str]
    skipped: list[str]
    reason: str = ""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; if it fails, everything ends here."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def pythons() -> dict[str, str]:
    """The Pythons of this machine that a release is for, by version; this one comes first."""
    folders = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep) if name]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    named = [
        str(path)
        for folder in folders
        if folder.is_dir()
        for path in folder.iterdir()
        if NAMED.fullmatch(path.name)
    ]
    found: dict[tuple[int, ...], str] = {}
    for path in (sys.executable, *named):
        version = version_of(path)
        if version >= OLDEST:
            found.setdefault(version, path)
    first, *others = found
    return {"{}.{}".format(*version): found[version] for version in (first, *sorted(others))}


def version_of(path: str) -> tuple[int, ...]:
    """Major and minor version; empty if it does not start.

    A name on the path may be a stand-in for a Python that is not there.
    """
    program = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def built(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist, freshly built."""
    run(sys.executable, "-m", "build", "--outdir", folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def environment(python: str, folder: Path, what: str) -> Path:
    """A clean environment in which something is installed; returns its Python."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(
        inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", constraints, what
    )
    run(inside, "-m", "pip", "check")
    return inside


def try_out(inside: Path, folder: Path, *, demo: bool) -> None:
    """The command line, away from the checkout."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    command = inside.parent / "fedforget"
    assert run(command, "--version", cwd=folder).strip() == f"fedforget {version}"
    where = run(inside, "-c", "import fedforget; print(fedforget.__file__)", cwd=folder)
    assert str(inside.parents[1]) in where, f"not the installed package: {where}"
    if demo:
        figures = json.loads(run(command, "demo", "--out", folder / "demo", "--json", cwd=folder))
        assert all(step["exact"] for step in figures["steps"]), figures


def licences(inside: Path) -> list[tuple[str, str, str]]:
    """Name, version and licence of everything that is installed."""
    return [tuple(row) for row in json.loads(run(inside, "-c", LICENCES))]


def as_table(rows: list[tuple[str, str, str]]) -> str:
    lines = [f"| {name} | {version} | {licence} |" for name, version, licence in rows]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *lines]) + "\n"


def components(inside: Path, target: Path) -> int:
    """Write the SBOM of an environment; returns how many components it lists."""
    run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--of", "JSON", "-o", target, inside),
    )
    listed = json.loads(target.read_text(encoding="utf-8"))["components"]
    assert {"numpy", "numba", "cryptography"} <= {one["name"].lower() for one in listed}
    return len(listed)


def audit(inside: Path) -> Audit:
    """Known vulnerabilities of an environment.  A network that refuses is no failure."""
    packages = run(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--path", packages, "-f", "json", "--timeout", "15"],
        capture_output=True,
        text=True,
        check=False,
    )
    return judged(done.returncode, done.stdout, done.stderr)


def judged(status: int, output: str, errors: str) -> Audit:
    """What the answer of pip-audit means."""
    try:
        listed = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = next((s for s in reversed(errors.strip().splitlines()) if s), "no answer")
        if UNREACHABLE.search(errors):
            return Audit(0, [], [], reason[:200])
        sys.exit(f"pip-audit failed with status {status}:\n{errors}")
    found = [
        f"{one['name']} {one['version']}: {hole['id']}"
        for one in listed
        for hole in one.get("vulns", ())
    ]
    # A registry that does not know a package answers as if all were well; pip-audit then skips it.
    skipped = [one["name"] for one in listed if "skip_reason" in one]
    reason = next((one["skip_reason"] for one in listed if "skip_reason" in one), "")
    return Audit(len(listed) - len(skipped), found, skipped, reason)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="VERSION", help="one version of Python, such as 3.12")
    only = parser.parse_args().only
    every = pythons()
    found = {known: path for known, path in every.items() if only in (None, known)}
    if not found:
        sys.exit(f"there is no Python {only} here; there are {', '.join(every)}")
    print(f"Pythons that are tried: {', '.join(found)}", flush=True)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    wheel, sdist = built(OUT)
    print(f"built {wheel.name} and {sdist.name}", flush=True)
    for version, python in found.items():
        with tempfile.TemporaryDirectory(prefix="fedforget-release-") as name:
            folder = Path(name)
            inside = environment(python, folder / "wheel", f"{wheel}[bench]")
            try_out(inside, folder, demo=True)
            print(f"Python {version}: the wheel is installed and its demo is exact", flush=True)
            try_out(environment(python, folder / "sdist", str(sdist)), folder, demo=False)
            print(f"Python {version}: the sdist is installed and starts", flush=True)
            if python == next(iter(found.values())):
                look_into(inside)
    print(f"passed with Python {', '.join(found)}")
    untried = [known for known in every if known not in found]
    if untried:
        print(f"NOT tried, though they are here: {', '.join(untried)}")


def look_into(inside: Path) -> None:
    """Licences, components and vulnerabilities of what the wheel brings."""
    rows = licences(inside)
    (OUT / "licences.md").write_text(as_table(rows), encoding="utf-8")
    unclear = [name for name, _, licence in rows if licence == "not stated"]
    print(f"licences of {len(rows)} packages: build/release/licences.md")
    if unclear:
        print(f"  no licence is stated by: {', '.join(unclear)}")
    print(f"SBOM of {components(inside, OUT / 'sbom.json')} components: build/release/sbom.json")
    result = audit(inside)
    if result.vulnerable:
        sys.exit("known vulnerabilities:\n  " + "\n  ".join(result.vulnerable))
    if not result.checked:
        print(f"vulnerabilities were NOT checked; nothing could be looked up: {result.reason}")
        return
    print(f"no known vulnerabilities in {result.checked} packages")
    if result.skipped:
        print(f"  NOT checked, because the index does not know them: {', '.join(result.skipped)}")


if __name__ == "__main__":
    main()
