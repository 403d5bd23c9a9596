"""The bundle of a process, as it is brought here: by a thread, for a clone may take minutes."""

import threading
import time

from sensorpool.airflow.compat import dag_bundles
from sensorpool.airflow.compat.dag_bundles import Bundle
from sensorpool.airflow.pool.dag_files.lookups import Questions
from sensorpool.errors import HandBack, InfraFailure, NotReady
from sensorpool.instrumentation.redaction import one_line

_PATIENCE = 20.0  # seconds that a load waits for its bundle
_RETRY_AFTER = 15.0  # seconds until a bundle that could not be brought here is tried again


class BundleHere:
    """A bundle at one version, once it is here. For the thread that loads.

    :param name: the name of the bundle.
    :param version: None for a bundle without versions.
    :param questions: what this process asks its parent.
    """

    def __init__(self, name: str, version: str | None, questions: Questions) -> None:
        self._name = name
        self._version = version
        self._questions = questions
        self._thread: threading.Thread | None = None
        self._failure: HandBack | InfraFailure | None = None
        self._tried_at = 0.0
        self.bundle: Bundle | None = None

    def get(self) -> Bundle:
        """Return the bundle.

        :raises HandBack: when it cannot be had here.
        :raises InfraFailure: when it is not here yet, or where it comes from does not answer.
        """
        if self._thread is None and (self._failure is None or time.monotonic() - self._tried_at > _RETRY_AFTER):
            self._failure = None
            self._thread = threading.Thread(target=self._bring, daemon=True, name="dag-bundle")
            self._thread.start()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():
                raise NotReady(f"the DAG bundle {self._name} is still being brought here")
            self._thread = None
        if self.bundle is not None:
            return self.bundle
        assert self._failure is not None
        raise self._failure

    def _bring(self) -> None:
        unanswered = self._questions.unanswered
        try:
            self.bundle = Bundle(self._name, self._version)
        except BaseException as error:  # a bundle is code of others
            said = f"its DAG bundle cannot be had in the pool: {one_line(error)}"
            is_for_now = self._questions.unanswered > unanswered or not dag_bundles.is_gone(error)
            self._tried_at = time.monotonic()
            self._failure = NotReady(said) if is_for_now else HandBack(said)
