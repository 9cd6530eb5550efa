"""The folder that ``flwr run`` takes: a Flower app around this package, and what operates it."""

from __future__ import annotations

from pathlib import Path

from fedforget.errors import FedforgetError
from fedforget.whole_files import whole_file

PACKAGE = "fedforget_app"

_PYPROJECT = """\
# The app that `flwr run` takes to the SuperLink, which takes it to the SuperNodes.  It holds two
# imports and no other code: every machine runs the fedforget that is installed there.

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedforget-app"
version = "{version}"
description = "Rounds of a fedforget federation"
license = "Apache-2.0"
dependencies = ["fedforget[flower]=={version}"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "fedforget"
fab-include = ["{package}/**/*.py"]

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# Every value can be set for one run:  flwr run . deployment --run-config 'rounds=3 pause=3600.0'
[tool.flwr.app.config]
# The server's directory, on the machine of the SuperLink (fedforget server init).
server = {server}
# How many rounds, with how many seconds between them.
rounds = 1
pause = 0.0
# full: count everybody anew; all members must be there.  delta: only what changed.
# as-needed: full at first and where the membership list asks for it, otherwise delta.
kind = "as-needed"
# true after the server's directory was restored from a backup: what the members know is taken over
# before the first round, which is a full one.
recover = false

# -- deployment --------------------------------------------------------------------------------
# Each SuperNode is told where its client's directory is:
#   flower-supernode ... --node-config 'client="/srv/fedforget/aarhus"'

# -- simulation --------------------------------------------------------------------------------
# The folder that holds the directories of all clients; node i takes the i-th by name.  Run with
#   flwr run . simulation --federation-config 'num-supernodes=3'
clients = {clients}
"""

_CONFIG = """\
# Where `flwr` finds SuperLinks.  Use it with FLWR_HOME={home}, or copy the sections
# that you need into ~/.flwr/config.toml.

[superlink]
default = "deployment"

# The SuperLink of the consortium.  This is its control API, which asks nobody who they are: use it
# on the machine itself, and let nobody reach it from outside.
[superlink.deployment]
address = "127.0.0.1:{port}"
root-certificates = {authority}

# Simulation on this machine: `flwr` starts a SuperLink of its own for it.
[superlink.simulation]
address = ":local-in-memory:"
"""

_MAKE_KEYS = """\
#!/bin/sh
# Makes the certificates of the SuperLink and the keys of the nodes; nothing is overwritten.
#
#   ./make-keys.sh superlink NAME_OR_ADDRESS ...   at the SuperLink: an authority and a certificate
#   ./make-keys.sh node NAME                       at a site: the key of its SuperNode
#
# keys/authority.pem goes to every site, keys/nodes/NAME.pub from each site to the SuperLink.
# The files that end in .key, and keys/nodes/NAME, stay where they were made.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p keys/nodes
case "${1:-}" in
superlink)
    shift
    [ $# -gt 0 ] || { echo "under which names do sites reach the SuperLink?" >&2; exit 2; }
    names=""
    for name in "$@" 127.0.0.1 localhost; do
        case "$name" in
        *[!0-9.]*) names="$names,DNS:$name" ;;
        *) names="$names,IP:$name" ;;
        esac
    done
    if [ ! -e keys/authority.key ]; then
        openssl ecparam -name prime256v1 -genkey -noout -out keys/authority.key
        openssl req -x509 -new -sha256 -key keys/authority.key -days 3650 \\
            -subj "/CN=fedforget authority" \\
            -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \\
            -addext "keyUsage=critical,keyCertSign,cRLSign" -out keys/authority.pem
    fi
    if [ ! -e keys/superlink.pem ]; then
        openssl ecparam -name prime256v1 -genkey -noout -out keys/superlink.key
        openssl req -new -sha256 -key keys/superlink.key -subj "/CN=$1" -out keys/superlink.csr
        printf '%s\\n' "subjectAltName=${names#,}" "basicConstraints=CA:FALSE" \\
            "keyUsage=digitalSignature" "extendedKeyUsage=serverAuth" \\
            "authorityKeyIdentifier=keyid" > keys/superlink.ext
        openssl x509 -req -sha256 -in keys/superlink.csr -CA keys/authority.pem \\
            -CAkey keys/authority.key -CAcreateserial -days 825 \\
            -extfile keys/superlink.ext -out keys/superlink.pem 2>/dev/null
        rm keys/superlink.csr keys/superlink.ext
    fi
    echo "keys/authority.pem goes to every site"
    ;;
node)
    [ -n "${2:-}" ] || { echo "which node?" >&2; exit 2; }
    if [ ! -e "keys/nodes/$2" ]; then
        ssh-keygen -q -t ecdsa -b 384 -N "" -C "$2" -f "keys/nodes/$2"
    fi
    echo "keys/nodes/$2.pub goes to the SuperLink; its fingerprint is"
    ssh-keygen -l -f "keys/nodes/$2.pub"
    ;;
*)
    sed -n '2,8p' "$0" | cut -c 3-
    exit 2
    ;;
esac
"""

_NGINX = """\
# The gate: the only thing on the machine of the SuperLink that sites reach.  It lets the Fleet API
# through, which asks every node for its key.  The control and runtime APIs are on the same port of
# the SuperLink and ask nobody: whoever reaches them can run programs at every site.
#
#   nginx -p {folder} -c {folder}/nginx.conf

daemon off;
pid keys/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path keys/body;
    proxy_temp_path keys/proxy;
    fastcgi_temp_path keys/none;
    uwsgi_temp_path keys/none;
    scgi_temp_path keys/none;
    server {{
        listen {gate} ssl;
        ssl_certificate keys/superlink.pem;
        ssl_certificate_key keys/superlink.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size 300m;
        location /v1/fleet/ {{
            proxy_pass https://127.0.0.1:{port};
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate keys/authority.pem;
            proxy_ssl_name localhost;
            # Messages are passed on, and never written to this machine's disk.
            proxy_buffering off;
            proxy_request_buffering off;
        }}
        location / {{
            return 403;
        }}
    }}
}}
"""

_IGNORE = "keys/\nflwr/\n"


class AppFolderError(FedforgetError):
    """A folder that an app cannot be written to."""


def write_app(
    folder: Path,
    version: str,
    *,
    server: Path = Path("/srv/fedforget/server"),
    clients: Path | None = None,
    port: int = 8000,
    gate: int = 9092,
) -> list[Path]:
    """Write an app folder; what is there already is refused.

    Parameters
    ----------
    folder : a new or an empty folder.
    version : of fedforget.
    server : the server's directory on the machine of the SuperLink.
    clients : the folder with all clients' directories, for simulation.
    port, gate : of the SuperLink, on loopback, and of the proxy that sites reach.
    """
    if folder.exists() and any(folder.iterdir()):
        raise AppFolderError(f"{folder} is not empty; choose another folder")
    home = folder.absolute() / "flwr"
    files = {
        "pyproject.toml": _PYPROJECT.format(
            version=version,
            package=PACKAGE,
            server=_quoted(server),
            clients=_quoted(clients) if clients else '""',
        ),
        f"{PACKAGE}/__init__.py": '"""Rounds of a fedforget federation, as a Flower app."""\n',
        f"{PACKAGE}/server_app.py": _import("server_app"),
        f"{PACKAGE}/client_app.py": _import("client_app"),
        "flwr/config.toml": _CONFIG.format(
            home=home, port=port, authority=_quoted(folder / "keys" / "authority.pem")
        ),
        "nginx.conf": _NGINX.format(folder=folder.absolute(), port=port, gate=gate),
        "make-keys.sh": _MAKE_KEYS,
        ".gitignore": _IGNORE,
    }
    written = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path, replace=False, private=False) as file:
                file.write(text.encode())
            written.append(path)
        (folder / "make-keys.sh").chmod(0o755)
    except OSError as error:
        raise AppFolderError(f"{folder} cannot be written: {error.strerror}") from None
    return written


def _import(module: str) -> str:
    return f'from fedforget.runtime.flower.{module} import app\n\n__all__ = ["app"]\n'


def _quoted(path: Path) -> str:
    text = str(path.expanduser().absolute()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
