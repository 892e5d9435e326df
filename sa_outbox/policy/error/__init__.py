"""What is kept of an error: a text without secrets, and where the error was raised.

====================  ============================================================================
``masking.py``        what may be kept of a text: no secrets, a bounded length
``frames.py``         the frames of an error, and whose code they are
``tracebacks.py``     the traceback of an error, as it is stored, logged and shown; its fingerprint
``stored_errors.py``  the errors of attempts, whatever is stored there
====================  ============================================================================

Imports ``secrets``. ``failure.py`` puts it together.
"""
