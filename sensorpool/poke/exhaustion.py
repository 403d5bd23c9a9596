"""Whether a process has run out of what its pokes share: memory, files or threads.

The poke that meets the shortage need not be its cause. So the shortage is a failure of the infrastructure, and the
process is replaced.
"""

import errno

_NUMBERS = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_NO_THREAD = "can't start new thread"


def is_exhaustion(error: BaseException) -> bool:
    """Whether an exception, its cause or its context says that memory, files or threads ran out."""
    return any(_says_so(each) for each in (error, error.__cause__, error.__context__))


def _says_so(error: BaseException | None) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and error.args[:1] == (_NO_THREAD,))
