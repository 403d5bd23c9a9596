"""Numbers with their nouns, for people."""


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun: ``1 group``, ``1,200 groups``.

    :param plural: the ending of the noun for other numbers than one.
    """
    return f"{number:,} {noun}{'' if number == 1 else plural}"
