"""To Kafka, through aiokafka: a whole batch at once, and in order.

The invariant: *each partition has one record batch in flight, and the next is given to the producer
when the broker has confirmed the previous one; likewise for an event's key, over all partitions.*
The broker appends a record batch as a whole or not at all, in order. So nothing is ever in flight
whose predecessors are not confirmed, and

- whatever fails, nothing that follows it arrives: ``keeps_order`` is true;
- a record batch without an answer that arrives late, or twice, holds only what is sent again
  anyway: the first occurrences of a key stay in order, whoever sent them and when.

aiokafka alone does not guarantee this. It too has one record batch per partition in flight, but
continues with the next when one has failed for good. Sequence numbers do not save an idempotent
producer then: a broker that has no state of it for that partition accepts any number as the first.
And where the broker has state, it refuses everything after the gap. So after any failure the
producer is discarded with everything it still holds, and the next one starts with a new id.

It costs nothing, since a record batch has room for a whole batch of the relay.

====================================================================  ===========================
``Kafka``: the relay                                                  ``relay.py``
messages to records, answers of the broker to answers                 ``records.py``
one producer, from its start to its end                               ``link.py``
which records may be in flight together                               ``packs.py``
what an error of aiokafka means for a message                         ``faults.py``
its log while a broker is unreachable                                 ``quiet.py``
====================================================================  ===========================

Imports ``errors`` and the rooms below it.
"""

from .relay import Kafka

__all__ = ["Kafka"]
