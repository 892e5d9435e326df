"""Which delivery a task gets next: never two of one lane side by side.

A lane is the key of events, or what else has to be handled one after the other. A loop has one
object with all of its lanes; they decide without I/O.

=============  ==================================================================================
``lanes.py``   of a listener, and of a queue, where nothing waits for anything else (pure)
``limits.py``  of a queue with limits: how many at once for a tenant, how many in a time (pure)
``held.py``    with order="total": the delivery that everything waits for
``ration.py``  lanes that hand out no more than a drain with a limit may begin (pure)
=============  ==================================================================================

Imports ``transaction``, for types only, and the rooms below it.
"""
