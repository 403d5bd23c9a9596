"""What an FTP server tells beside its listings: where a link leads, and when a file was modified."""

from collections.abc import Mapping
from ftplib import FTP, error_perm
from typing import Any

from sensorpool.sensors.connections import PokeFailed

_KNOWS_NO_SUCH_COMMAND = ("500", "502", "504")


def target(ftp: FTP, path: str) -> Mapping[str, Any] | None:
    """Return what a link leads to, as a listing tells it; None: to nothing, or to no file or folder.

    :raises PokeFailed: when the server does not tell.
    """
    home = ftp.pwd()
    try:
        ftp.cwd(path)
    except error_perm:
        pass
    else:
        ftp.cwd(home)
        return {"name": path, "type": "directory"}
    try:
        ftp.voidcmd("TYPE I")  # some servers tell no size in the other mode
        return {"name": path, "type": "file", "size": ftp.size(path)}
    except error_perm as error:
        if _is_unknown(error):
            raise PokeFailed("this server does not tell where a link leads: give the path of the file itself") from None
        return None


def modified(ftp: FTP, path: str) -> str | None:
    """Return when a file was last modified, in FTP's digits; None if the server does not tell.

    :raises FileNotFoundError: when the file is gone.
    """
    try:
        return ftp.voidcmd(f"MDTM {path}").partition(" ")[2].strip()
    except error_perm as error:
        if _is_unknown(error):
            return None
        raise FileNotFoundError(path) from None


def _is_unknown(error: error_perm) -> bool:
    return str(error).startswith(_KNOWS_NO_SUCH_COMMAND)
