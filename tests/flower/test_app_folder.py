"""``fedforget flower init``: what it writes can be used as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from fedforget import __version__
from fedforget.cli.flower import app
from fedforget.runtime.flower.app_folder import AppFolderError, write_app
from fedforget.runtime.flower.network import OFFLINE


def test_the_folder_is_complete_and_parses(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    done = CliRunner().invoke(
        app, ["init", str(folder), "--server", str(tmp_path / "server"), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert {Path(name).name for name in json.loads(done.stdout)["files"]} >= {
        "pyproject.toml",
        "config.toml",
        "nginx.conf",
        "make-keys.sh",
    }
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["version"] == __version__
    config = project["tool"]["flwr"]["app"]["config"]
    assert config["server"] == str(tmp_path / "server")
    assert (config["kind"], config["recover"]) == ("as-needed", False)
    connections = tomllib.loads((folder / "flwr" / "config.toml").read_text())["superlink"]
    assert connections["deployment"]["root-certificates"] == str(folder / "keys/authority.pem")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_app(tmp_path / "app", __version__)
    with pytest.raises(AppFolderError, match="not empty"):
        write_app(tmp_path / "app", __version__)
    done = CliRunner().invoke(app, ["init", str(tmp_path / "app")])
    assert done.exit_code == 1
    assert "not empty" in done.output


@pytest.mark.skipif(
    shutil.which("openssl") is None or shutil.which("ssh-keygen") is None,
    reason="openssl and ssh-keygen make the keys",
)
def test_the_script_makes_keys_once(tmp_path: Path) -> None:
    write_app(tmp_path / "app", __version__)
    keys = tmp_path / "app" / "keys"

    def make(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = str(tmp_path / "app" / "make-keys.sh")
        return subprocess.run([script, *arguments], capture_output=True, text=True, check=False)

    for _ in range(2):
        assert make("superlink", "superlink.example.org", "10.0.0.7").returncode == 0
        told = make("node", "aarhus")
        assert told.returncode == 0
        assert "SHA256:" in told.stdout
        made = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    assert made == {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    for path in made:
        assert path.stat().st_mode & 0o077 == 0 or path.suffix == ".pub", path
    certificate = x509.load_pem_x509_certificate((keys / "superlink.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((keys / "authority.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["superlink.example.org", "localhost"]
    found = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert found == ["10.0.0.7", "127.0.0.1"]
    assert (keys / "nodes" / "aarhus.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    assert make().returncode == 2
    assert make("superlink").returncode == 2
    assert make("node").returncode == 2


@pytest.mark.usefixtures("flower")
def test_flower_builds_the_app_and_leaves_keys_out(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    write_app(folder, __version__)
    (folder / "keys").mkdir()
    (folder / "keys" / "superlink.key").write_text("secret")
    (folder / "keys" / "secret.json").write_text("secret")
    flwr = str(Path(sys.executable).parent / "flwr")
    done = subprocess.run(
        [flwr, "build", "--app", str(folder)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **OFFLINE, "FLWR_HOME": str(tmp_path / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
    assert {name for name in names if name.endswith(".py")} == {
        "fedforget_app/__init__.py",
        "fedforget_app/client_app.py",
        "fedforget_app/server_app.py",
    }
    assert not any("key" in name or "secret" in name for name in names)
