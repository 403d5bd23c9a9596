"""Why a sensor is not pooled."""


class NotPoolable(Exception):
    """The sensor is not poolable; it runs natively. The message says why.

    :param kind: a word for the counter.
    """

    def __init__(self, why: str, kind: str = "not_poolable") -> None:
        super().__init__(why)
        self.kind = kind
