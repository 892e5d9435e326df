"""To Kafka, through aiokafka: a whole batch at once, and in order.

The invariant: *of a partition, one record batch is under way, and the next is given to the producer
when the broker has confirmed the one before it; of an event's key the same, over all partitions.*
The broker appends a record batch as a whole or not at all, in its order. So nothing is ever under
way whose predecessors are not confirmed, and

- whatever fails, nothing arrives that comes after it: ``keeps_order`` is true;
- a record batch of which no answer came, and that arrives late, or twice, holds only what is sent
  again anyway: the first occurrences of a key stay in their order, whoever sent it and when.

aiokafka alone does not hold this. It too has one record batch of a partition under way, but goes on
with the next when one has failed for good. An idempotent producer is then not saved by its sequence
numbers: a broker that has no state of it for that partition takes any number as the first. And
where the broker has one, it refuses everything after the gap. So after any failure the producer is
thrown away with all that it still holds, and the next one begins with an id of its own.

It costs nothing, since a record batch here has room for a whole batch of the relay.

====================================================================  ===========================
``Kafka``: the relay                                                  ``relay.py``
messages to records, answers of the broker to answers                 ``sending.py``
one producer, from its start to its end                               ``link.py``
which records may be under way together                               ``packing.py``
what an error of aiokafka means for a message                         ``faults.py``
its log, when a broker is away                                        ``quiet.py``
====================================================================  ===========================
"""

from .relay import Kafka

__all__ = ["Kafka"]
