"""fsspec's SFTP filesystem, which connects as ``ssh`` does and ends its connections."""

from fsspec.implementations.sftp import SFTPFileSystem
from paramiko import AuthenticationException, SSHClient, SSHException


class SftpFileSystem(SFTPFileSystem):  # type: ignore[misc]
    """An SFTP filesystem.

    :raises AuthenticationException: when the server is there, and the key, password or known host is wrong.
    """

    def _connect(self) -> None:
        self.client = SSHClient()
        self.client.load_system_host_keys()
        self.client.set_missing_host_key_policy(self.host_key_policy)
        try:
            self._log_in()
            self.ftp = self.client.open_sftp()
        except BaseException:
            self.close()
            raise

    def _log_in(self) -> None:
        try:
            self.client.connect(self.host, **self.ssh_kwargs)
        except SSHException as error:
            transport = self.client.get_transport()
            if type(error) is SSHException and transport is not None and transport.is_active():
                # the server has not hung up: a passphrase is wrong, or its host key unknown
                raise AuthenticationException(str(error)) from error
            raise

    def close(self) -> None:
        """End the connection: its thread and socket would stay."""
        self.client.close()
