"""What is wrong with an outbox that runs, what it means, and what mends it.

``examine`` asks a database everything; each kind of finding is a module with a function ``find``.
Nothing is changed, the log is not scanned, and what the role may not ask is said and left out.

| module | what it finds |
| --- | --- |
| ``structure`` | tables, versions, ids, rights: what ``verify`` finds, and more rights |
| ``home`` | a database that was restored or cloned and not adopted |
| ``log`` | partitions that run out, events in the partition that takes the rest |
| ``storage`` | autovacuum switched off or set otherwise, bloat |
| ``listeners`` | orphans, pauses, dead letters |
| ``consumers`` | nobody at work, leases that nobody takes over |
| ``horizon`` | transactions that hold the horizon |
| ``server`` | settings, connections, version, clock |
| ``leftovers`` | keys that have expired and are not deleted |
| ``listening`` | a LISTEN that hears nothing: needs an address, and is asked by the command |

``codes`` has every code with its severity; docs/troubleshooting.md has a section for each.
"""

from .case import Thresholds as Thresholds
from .codes import CODES as CODES
from .examination import examine as examine
from .finding import Finding as Finding
