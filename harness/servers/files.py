"""File servers that people run: OpenSSH, vsftpd, and Microsoft's emulator of Azure's blobs."""

import os
import pwd
import shutil
import socket
from pathlib import Path
from typing import Any

from .certificates import make_certificates
from .server import LOOPBACK, Missing, Server


class OpenSshServer(Server):
    """An OpenSSH server, for files by SFTP. Its user has the key ``key`` and no password."""

    def locate(self) -> None:
        found = shutil.which("sshd", path="/usr/sbin:/usr/bin")
        if not found:
            raise Missing("no OpenSSH: apt-get install openssh-server")
        self._binary = found
        self.account = None  # the account of the other servers is locked: nobody may log in as it
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    @property
    def url(self) -> str:
        return f"sftp://{LOOPBACK}:{self.port}"

    @property
    def files(self) -> Path:
        """The folder of the files that tests put there."""
        return self.folder / "files"

    @property
    def options(self) -> dict[str, Any]:
        """The options of a connection."""
        return {"base_url": self.url, "username": _name_of(self.files), "key_filename": str(self.folder / "key")}

    def install(self) -> None:
        for name in ("host_key", "key"):
            self.run("/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        self.run("/bin/mkdir", "-m", "0777", str(self.files))

    def command(self) -> list[str]:
        settings = {
            "ListenAddress": LOOPBACK,
            "Port": str(self.port),
            "HostKey": str(self.folder / "host_key"),
            "PidFile": "none",
            "AuthorizedKeysFile": str(self.folder / "key.pub"),
            "PasswordAuthentication": "no",
            "StrictModes": "no",
            "UsePAM": "no",
            "Subsystem": "sftp internal-sftp",
            **self.settings,
        }
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        return [self._binary, "-D", "-e", "-f", str(self.write("sshd_config", text))]

    def check(self) -> None:
        socket.create_connection((LOOPBACK, self.port), 5).close()


class VsftpdServer(Server):
    """A vsftpd, for anybody. It runs as its starter, and so its paths are those of this machine.

    With ``tls`` it asks for TLS on every connection, as its manual has it.
    """

    def __init__(self, *, tls: bool = False, implicit: bool = False) -> None:
        self._tls, self._implicit = tls, implicit
        super().__init__()

    def locate(self) -> None:
        found = shutil.which("vsftpd", path="/usr/sbin:/usr/bin")
        if not found:
            raise Missing("no vsftpd: apt-get install vsftpd")
        self._binary = found

    @property
    def url(self) -> str:
        return f"ftp://{LOOPBACK}:{self.port}"

    @property
    def files(self) -> Path:
        """The folder of the files that tests put there."""
        return self.folder / "files"

    def install(self) -> None:
        self.run("/bin/mkdir", "-m", "0777", str(self.files))
        self.run("/bin/mkdir", str(self.folder / "empty"))
        if self._tls:
            make_certificates(self.folder)

    def command(self) -> list[str]:
        settings = {
            **{"listen_address": LOOPBACK, "listen_port": str(self.port), "anon_root": str(self.files)},
            **{"secure_chroot_dir": str(self.folder / "empty"), "ftp_username": _name_of(self.files)},
            **dict.fromkeys(("listen", "anonymous_enable", "no_anon_password", "run_as_launching_user"), "YES"),
            **dict.fromkeys(("background", "seccomp_sandbox", "local_enable"), "NO"),
        }
        if self._tls:
            names = ("ssl_enable", "allow_anon_ssl", "force_anon_data_ssl", "force_anon_logins_ssl")
            settings |= dict.fromkeys(names, "YES") | {"implicit_ssl": "YES" if self._implicit else "NO"}
            settings["rsa_cert_file"] = str(self.folder / "server.pem")
            settings["rsa_private_key_file"] = str(self.folder / "server.key")
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        return [self._binary, str(self.write("vsftpd.conf", text))]

    def check(self) -> None:
        socket.create_connection((LOOPBACK, self.port), 5).close()


def _name_of(path: Path) -> str:
    return pwd.getpwuid(path.stat().st_uid).pw_name


class AzuriteServer(Server):
    """Azurite, for the blobs of one account."""

    # the key of the emulator's account, as its documentation has it
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def locate(self) -> None:
        found = shutil.which("azurite-blob")
        if not found:
            raise Missing("no Azurite: npm install --global azurite")
        self._binary = found

    @property
    def url(self) -> str:
        return self.connection_string(self.key)

    def connection_string(self, key: str) -> str:
        """The connection string with a key."""
        at = f"http://{LOOPBACK}:{self.port}/devstoreaccount1"
        return f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={key};BlobEndpoint={at};"

    def command(self) -> list[str]:
        where = ["--blobHost", LOOPBACK, "--blobPort", str(self.port), "--location", str(self.folder)]
        return [self._binary, *where, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

    def check(self) -> None:
        socket.create_connection((LOOPBACK, self.port), 5).close()
