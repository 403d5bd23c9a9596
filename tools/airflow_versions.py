"""Run tests on the versions of Airflow that ``tests/e2e/versions`` names, each in an environment of its own.

    python tools/airflow_versions.py [VERSION ...] -- PYTEST_ARGUMENTS

`make e2e-versions` and `make airflow-versions` call it. The environments are kept between runs. A version that no
package registry brings is listed as not run; any other failure to install it counts as a failure.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ROOT / "tests" / "e2e" / "versions"
NOT_RUN = "not run: no package registry that this machine reaches brings it"
_ABSENT = "No matching distribution found for apache-airflow"


def main(arguments: list[str]) -> int:
    """Run the tests on each version, and print what came of it; return the exit code of the whole."""
    place = arguments.index("--")
    named, given = arguments[:place], arguments[place + 1 :]
    outcomes: dict[str, str] = {}
    for version in named or sorted(path.stem for path in VERSIONS.glob("*.txt")):
        print(f"\n=== Airflow {version}", flush=True)
        began = time.monotonic()
        outcomes[version] = _install(version) or _run(version, given)
        print(f"--- Airflow {version}: {outcomes[version]} after {time.monotonic() - began:.0f} s", flush=True)
    print()
    for version, outcome in outcomes.items():
        print(f"Airflow {version}: {outcome}")
    has_failed = any(outcome not in {"passed", NOT_RUN} for outcome in outcomes.values())
    return int(has_failed or "passed" not in outcomes.values())


def _install(version: str) -> str | None:
    """Make the environment of a version, if it is not there; return what is wrong with it."""
    make = ["make", "--no-print-directory", f".venv-e2e-{version}/e2e.stamp"]
    done = subprocess.run(make, check=False, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603
    if done.returncode == 0:
        return None
    print(done.stdout, flush=True)
    return NOT_RUN if _ABSENT in done.stdout else "FAILED (could not be installed)"


def _run(version: str, given: list[str]) -> str:
    python = ROOT / f".venv-e2e-{version}" / "bin" / "python"
    done = subprocess.run([str(python), "-m", "pytest", *given], check=False, cwd=ROOT)  # noqa: S603
    return "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
