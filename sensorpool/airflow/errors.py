"""Why a sensor is not pooled, or goes back to its worker."""


class NotPoolable(Exception):
    """The sensor is not poolable and runs natively. The message says why.

    :param kind: a word for the counter.
    """

    def __init__(self, why: str, kind: str = "not_poolable") -> None:
        super().__init__(why)
        self.kind = kind


class OnlyOnWorker(BaseException):
    """A poke in the pool asks for something that only its task or its worker has; the sensor is handed back.

    Not an Exception: a poke that catches exceptions and goes on must not catch this one.
    """


class LookupUnavailable(BaseException):
    """A poke in the pool looks up a Connection or Variable, and Airflow's database does not answer."""
