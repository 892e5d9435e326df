"""Decisions without I/O: which events are taken, and of deliveries, when and how fast.

=====================  ===========================================================================
``delivery.py``        the states of a delivery, and what an attempt leads to
``order.py``           ``OrderMode``: what each order of a listener means
``retry.py``           ``RetryPolicy``: when to attempt again
``retry_after.py``     how long an error asks us to wait
``admission.py``       which events an outbox takes: its contract, a check of the program's own
``contract.py``        ``Contract``: which fields an event must have
``secrets.py``         ``NoSecrets``: what looks like a secret, and a check that refuses it
``failure.py``         what is kept of an error: cleaned, bounded, without secrets
``error/``             masks, tracebacks and fingerprints of errors
``rate.py``            ``Rate``: the arithmetic of rate limits
``backoff.py``         how long to wait between attempts: twice as long each time
``checks.py``          checks that settings, policies and declarations share
``payload_filter.py``  the filter of a listener: fields that a payload must have
``category.py``        ``Category``: kinds of work, and how each is queued and retried
=====================  ===========================================================================

Imports ``event`` and ``errors``.
"""
