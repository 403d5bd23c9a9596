"""A Django project: its settings, and ``manage.py sensorpool``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sensorpool

pytestmark = pytest.mark.processes

CODE = str(Path(sensorpool.__file__).parents[1])
MANAGE = """
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["sensorpool.django"]
USE_TZ = True
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": r"{folder}/project.db"}}}}
{more}
"""


class Project:
    """A Django project in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "manage.py").write_text(MANAGE)

    def settings(self, more: str) -> None:
        """Write its settings."""
        (self.folder / "shop_settings.py").write_text(SETTINGS.format(folder=self.folder, more=more))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``python …`` in it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SENSORPOOL_")}
        paths = os.pathsep.join((str(self.folder), CODE))
        own = {"DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONPATH": paths}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=kept | own | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_database_of_the_project(project: Project) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"\nSENSORPOOL_POKE_INTERVAL = 7\nSENSORPOOL_TICK = 1')
    assert project.run("manage.py", "sensorpool", "db", "upgrade").returncode == 0
    done = project.run("manage.py", "sensorpool", "config", "--json")
    assert done.returncode == 0, done.stderr
    assert f"sqlite:///{project.folder}/project.db" in done.stdout
    assert '"poke_interval": 7.0' in done.stdout
    program = "import sensorpool; print(sensorpool.register('sensorpool.sensors.PathSensor', {'path': '/x'}).id)"
    assert project.run("-c", program).stdout == "1\n"
    listed = project.run("manage.py", "sensorpool", "list", "--json")
    assert "PathSensor" in listed.stdout


def test_the_environment_wins(project: Project) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"\nSENSORPOOL_POKE_INTERVAL = 7')
    done = project.run("-m", "sensorpool", "config", "--json", SENSORPOOL_POKE_INTERVAL="9")
    assert '"poke_interval": 9.0' in done.stdout, done.stderr
    lines = project.run("-m", "sensorpool", "config", SENSORPOOL_POKE_INTERVAL="9").stdout.splitlines()
    origins = {line.split()[0]: line for line in lines}
    assert origins["SENSORPOOL_POKE_INTERVAL"].endswith("environment")
    assert origins["SENSORPOOL_DATABASE_URL"].endswith("Django's settings")
    assert origins["SENSORPOOL_TICK"].endswith("default")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "SENSORPOOL_POKE_INTERVALL = 7",
            "SENSORPOOL_POKE_INTERVALL, which is no setting (did you mean SENSORPOOL_POKE_INTERVAL?)",
        ),
        ("SENSORPOOL_POKE_INTERVAL = 'x'", "POKE_INTERVAL"),
        ("SENSORPOOL_DATABASE = 'other'", "names 'other', which is not in DATABASES"),
        ("SENSORPOOL_DATABASE = 'default'\nDATABASES['default']['ENGINE'] = 'django.db.backends.oracle'", "oracle"),
        ("import no_such_module", "cannot be imported"),
    ],
)
def test_a_wrong_setting_is_one_line(project: Project, more: str, said: str) -> None:
    project.settings(more)
    done = project.run("-m", "sensorpool", "config")
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_postgres_of_the_project(project: Project) -> None:
    project.settings(
        'DATABASES["default"] = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "us@er",'
        ' "PASSWORD": "p/w:x", "HOST": "db", "PORT": "5433", "OPTIONS": {"sslmode": "require"}}\n'
        'SENSORPOOL_DATABASE = "default"'
    )
    program = "from sensorpool import Settings; print(Settings.load().database_url)"
    done = project.run("-c", program)
    assert done.stdout == "postgresql+psycopg://us%40er:p%2Fw%3Ax@db:5433/shop?sslmode=require\n", done.stderr


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        (
            '"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "HOST": "/var/run/postgresql"',
            "postgresql+psycopg:///shop?host=%2Fvar%2Frun%2Fpostgresql",
        ),
        (
            '"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "HOST": "/cloudsql/p:r:i", "USER": "u"',
            "postgresql+psycopg://u@/shop?host=%2Fcloudsql%2Fp%3Ar%3Ai",
        ),
        (
            '"ENGINE": "django.db.backends.mysql", "NAME": "shop", "HOST": "/run/my.sock", "OPTIONS": {"charset": "x"}',
            "mysql+pymysql:///shop?unix_socket=%2Frun%2Fmy.sock",
        ),
    ],
)
def test_a_socket_of_the_project(project: Project, entry: str, url: str) -> None:
    project.settings(f'DATABASES["default"] = {{{entry}}}\nSENSORPOOL_DATABASE = "default"')
    program = "from sensorpool import Settings; print(Settings.load().database_url)"
    done = project.run("-c", program)
    assert done.stdout == f"{url}\n", done.stderr


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"service": "shop"}', "without a NAME"),
        ('"ENGINE": "django.db.backends.postgresql", "NAME": "x", "PORT": "5432,5433"', "PORT is '5432,5433'"),
        ('"ENGINE": "django.db.backends.mysql", "NAME": "x", "OPTIONS": {"ssl": {"ca": "/x"}}', "option 'ssl'"),
    ],
)
def test_what_would_be_lost_is_refused_in_one_line(project: Project, entry: str, said: str) -> None:
    project.settings(f'DATABASES["default"] = {{{entry}}}\nSENSORPOOL_DATABASE = "default"')
    done = project.run("-m", "sensorpool", "config")
    assert done.returncode == 2
    assert said in done.stderr
    assert "name it in SENSORPOOL_DATABASE_URL" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_the_command_from_code(project: Project) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"')
    program = (
        "import django; django.setup(); from django.core.management import call_command; "
        "call_command('sensorpool', 'db', 'upgrade'); call_command('sensorpool', 'db', 'current')"
    )
    done = project.run("-c", program)
    assert done.returncode == 0, done.stderr
    assert "00" in done.stdout


CALLS = """
import io, sys
import django; django.setup()
from django.core.management import CommandError, call_command
def call(*arguments, **options):
    try:
        print(call_command("sensorpool", *arguments, **options))
    except CommandError as error:
        print(error.returncode, error)
"""


def test_a_command_from_code_raises_what_went_wrong_and_no_exit(project: Project) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"')
    calls = [
        *('call("db", "current", stdout=io.StringIO())', 'call("db", "upgrade", stdout=io.StringIO())'),
        *('call("db", "check", stdout=io.StringIO())', 'call("show", 5)', 'call("show", "x")', 'call("no-such")'),
        *('call("status", "--no-such")', "call()", 'call("list", "--json")', 'call("list", "--help", stdout=None)'),
    ]
    done = project.run("-c", CALLS + "\n".join(calls))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "1 sensorpool db ended with exit code 1: its output says why",
        "None",
        "None",
        "1 sensorpool show ended with exit code 1: its output says why",
    ]
    assert lines[4].startswith("2 Invalid value for 'ID': 'x' is not a valid integer")
    assert lines[5].startswith("2 No such command 'no-such'")
    assert lines[6].startswith("2 No such option")
    assert lines[7].startswith(("2 Usage: sensorpool", "Usage: sensorpool"))
    assert "[]\nNone\nUsage: sensorpool list" in done.stdout
    assert lines[-1] == "None"
    assert done.stderr.splitlines() == [
        "sensorpool: there is no instance 5: it was never registered, or has been pruned"
    ]


def test_the_output_of_a_command_from_code_goes_to_the_streams_given(project: Project) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"')
    program = """
from django.core.management.base import OutputWrapper
call("db", "upgrade", stdout=io.StringIO())
out, wrapped, err = io.StringIO(), io.StringIO(), io.StringIO()
call("list", "--json", stdout=out)
call("list", "--json", stdout=OutputWrapper(wrapped))
call("show", "5", stderr=err)
print([out.getvalue(), wrapped.getvalue(), err.getvalue()[:31]])
"""
    done = project.run("-c", CALLS + program)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == str(["[]\n", "[]\n", "sensorpool: there is no instanc"])


def test_an_interrupt_of_a_command_from_code_is_none_of_clicks(project: Project) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"')
    program = """
import signal, sensorpool
call("db", "upgrade")
made = sensorpool.register("sensorpool.sensors.PathSensor", {"path": "/nowhere/x"})
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.alarm(1)
try:
    call("wait", made.id)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = project.run("-c", CALLS + program)
    assert done.stdout.splitlines()[-1] == "interrupted", done.stderr


@pytest.mark.parametrize("options", [("--settings=other_settings",), ("--settings", "other_settings")])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_options_of_django_are_its_own(project: Project, options: tuple[str, ...], is_first: bool) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"\nSENSORPOOL_POKE_INTERVAL = 7')
    place = project.folder / "elsewhere"
    place.mkdir()
    (project.folder / "shop_settings.py").rename(place / "other_settings.py")
    given = (*options, f"--pythonpath={place}")
    ours = ("config", "--json")
    done = project.run("manage.py", "sensorpool", *(given + ours if is_first else ours + given))
    assert done.returncode == 0, done.stderr
    assert '"poke_interval": 7.0' in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "5"), 1, "sensorpool: there is no instance 5"),
        (("show", "x"), 2, "Usage: manage.py sensorpool show"),
        (("list", "--settings"), 2, "expected one argument"),
        (("list", "--settings", "--json"), 2, "expected one argument"),
        (("show", "--", "--settings=x"), 2, "'--settings=x' is not a valid integer"),
    ],
)
def test_the_exit_codes_of_manage(project: Project, arguments: tuple[str, ...], code: int, said: str) -> None:
    project.settings('SENSORPOOL_DATABASE = "default"')
    assert project.run("manage.py", "sensorpool", "db", "upgrade").returncode == 0
    done = project.run("manage.py", "sensorpool", *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
