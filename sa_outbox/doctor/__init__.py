"""What is wrong with a running outbox, what it means, and how to fix it.

``examine`` runs every check on a database; each kind of finding is a module with a function
``find``. Nothing is changed, the log is not scanned, and checks that the role may not run are
reported and skipped.

===================  =============================================================================
``examination.py``   runs every check, part by part
``case.py``          what every part is given
``finding.py``       one finding
``codes.py``         every code with its severity; docs/troubleshooting.md has a section for each
``structure.py``     tables, versions, ids, rights: what ``verify`` finds, and more rights
``interference.py``  row-level security, rules and triggers, rights that are too wide
``home.py``          a database that was restored or cloned and not adopted
``log.py``           partitions that run out, events in the catch-all
``storage.py``       autovacuum switched off or changed, bloat
``listeners.py``     orphans, pauses, dead letters
``consumers.py``     no consumer running
``horizon.py``       transactions that have written events and do not end
``leftovers.py``     what has expired and is still there
``server.py``        the server's version, settings, connections, clock
``query_shape.py``   the beginning of a query, without anything that may be secret
``listen_check.py``  a LISTEN that receives nothing: needs a URL, run by the command
===================  =============================================================================

Imports ``operations``, ``schema`` and the rooms below them.
"""

from .case import Thresholds as Thresholds
from .codes import CODES as CODES
from .examination import examine as examine
from .finding import Finding as Finding
