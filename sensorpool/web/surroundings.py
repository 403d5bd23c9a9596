"""What the application that the pages are part of tells beside what the pool knows. Alone, there is nothing."""

from typing import Any

from sensorpool.web.access import Reader


class Surroundings:
    """Nothing is around the pages; an application that serves them in a place of its own overrides this."""

    def sentences(self, shown: dict[str, Any], reader: Reader) -> dict[str, str]:  # noqa: ARG002
        """Return further sentences about an instance, by what they are about. It raises nothing.

        :param shown: as `admin.instances.show` returns it.
        :param reader: what this reader may not see is not told.
        """
        return {}

    def figures(self) -> dict[str, str]:
        """Return further figures of the overview, by their labels. It raises nothing."""
        return {}
