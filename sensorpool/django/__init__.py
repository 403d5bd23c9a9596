"""Django: settings of ``django.conf``, and ``manage.py sensorpool``. Add ``"sensorpool.django"`` to ``INSTALLED_APPS``.

The tables are not Django's: ``manage.py sensorpool db upgrade`` makes them, and no migration of Django touches them.
"""
