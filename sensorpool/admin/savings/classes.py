"""Whether the pool takes a class: what the catalogs of `config.catalogs` say, which are read without the class."""

from functools import cache

from sensorpool.admin.savings.values import Taken
from sensorpool.config.catalogs import Kind, catalog_of

_OF_A_DAG_FILE = "unusual_prefix_"  # Airflow's name for the module of a DAG file, followed by 40 digits of a digest
_DIGEST = 41


@cache
def taken_of(op_classpath: str) -> Taken:
    """Return whether the pool takes a class by default."""
    catalog = catalog_of(op_classpath)
    if catalog is None:
        return Taken.NOT_BY_DEFAULT if op_classpath.startswith(_OF_A_DAG_FILE) else Taken.NOT_KNOWN
    if op_classpath in catalog.classes:
        return Taken.BY_DEFAULT
    kind = catalog.kind_of(op_classpath)
    if kind is Kind.SENSOR:  # a name of Airflow 2 for a class of the catalog
        return Taken.BY_DEFAULT
    return Taken.NOT_BY_DEFAULT if kind is Kind.EXACT else Taken.NOT_KNOWN


def readable(op_classpath: str) -> str:
    """Return a class path for people: of a class in a DAG file without the digest in its module's name."""
    if op_classpath.startswith(_OF_A_DAG_FILE):
        return op_classpath[len(_OF_A_DAG_FILE) + _DIGEST :]
    return op_classpath
