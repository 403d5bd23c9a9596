"""A certificate authority of a test, and a certificate of loopback that it has signed."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from .server import LOOPBACK, Missing


class Certificates(NamedTuple):
    """Files: of the authority, and of a server on loopback with its key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make them in a folder.

    :raises Missing: when this machine has no openssl.
    """
    if shutil.which("openssl") is None:
        raise Missing("no openssl: apt-get install openssl")
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    authority_key = folder / "ca.key"
    _run(*new, "-subj", "/CN=test", "-keyout", authority_key, "-out", made.authority)
    names = f"subjectAltName=IP:{LOOPBACK},DNS:localhost"
    signed = ("-CA", made.authority, "-CAkey", authority_key)
    _run(*new, "-subj", "/CN=localhost", "-addext", names, *signed, "-keyout", made.key, "-out", made.certificate)
    for file in made:
        file.chmod(0o644)
    return made


def _run(*command: object) -> None:
    subprocess.run([str(each) for each in command], check=True, capture_output=True, timeout=60)
