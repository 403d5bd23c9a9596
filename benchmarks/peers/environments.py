"""The virtual environments of peers that cannot share ours. They are made once, and kept."""

import subprocess
import sys
import venv
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv-peers"

# the installation of each peer, in steps: options of `pip install`
ENVIRONMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "smart_sensor": (
        ("setuptools<66",),  # Airflow 2.3 needs pkg_resources
        (
            f"--constraint={Path(__file__).with_name('smart_sensor.txt')}",
            "apache-airflow==2.3.4",
            "psycopg2-binary",
        ),
    ),
    "apscheduler3": (("apscheduler>=3.11,<4",),),
}


def environment(name: str) -> Path:
    """Return the interpreter of an environment; make the environment if it does not exist.

    :raises subprocess.CalledProcessError: when pip fails.
    """
    folder = PLACE / name
    interpreter, stamp = folder / "bin" / "python", folder / "made"
    if stamp.exists() and stamp.read_text() == repr(ENVIRONMENTS[name]):
        return interpreter
    click.echo(f"making {folder.relative_to(ROOT)}", err=True)
    venv.create(folder, clear=True, with_pip=True)
    for options in ENVIRONMENTS[name]:
        click.echo(f"  pip install {' '.join(options)}", err=True)
        command = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        subprocess.run([*command, *options], check=True, stdout=sys.stderr)
    stamp.write_text(repr(ENVIRONMENTS[name]))
    return interpreter


def version(interpreter: Path, package: str) -> str:
    """Return the version of a package in an environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([str(interpreter), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
