"""Every statement of the package: functions that build statements and do not run them.

One builder serves both sync and async callers. Its docstring says what the statement returns, which
rows it locks and which index serves it. No other package contains SQL.

=============  ===================================================================================
``server/``    the server itself: names, catalogs, NOTIFY, transactions, times
``log/``       the log: adding, the horizon, reading, partitions, deletion
``listener/``  rows of listeners: cursors, leases, deliveries, and the small tables
``queue/``     queues: claims, ranges, cancellation
``people/``    what operators query and change: overview, searches, resolution, audit
=============  ===================================================================================

Imports ``database`` and the rooms below it. Each of these packages imports only those above it.
"""
