"""Decisions about deliveries, without I/O: retry or give up, when, how fast.

=====================  ===========================================================================
``delivery.py``        the states of a delivery, and what an attempt leads to
``order.py``           ``OrderMode``: what each order of a listener means
``retry.py``           ``RetryPolicy``: when to attempt again
``retry_after.py``     how long an error asks us to wait
``failure.py``         what is kept of an error: cleaned, bounded, without secrets
``rate.py``            ``Rate``: the arithmetic of rate limits
``backoff.py``         how long to wait between attempts: twice as long each time
``checks.py``          checks that settings, policies and declarations share
``payload_filter.py``  the filter of a listener: fields that a payload must have
``category.py``        ``Category``: kinds of work, and how each is queued and retried
=====================  ===========================================================================

Imports ``event`` and ``errors``.
"""
