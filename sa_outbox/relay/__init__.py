"""Relays: from the outbox to brokers and webhooks, in order per key, at least once.

========================  ========================================================================
``declaration.py``        ``relay(outbox, ...)`` creates a listener that forwards
``message.py``            the contract of every relay, ours or your own
``envelope.py``           turns an event into a message
``forward.py``            sends messages, collects answers, keeps the order
``words.py``              fields of an event keep their place in a subject or routing key
``errors.py``             an error with its cause, and a missing extra
``kafka/``                to Kafka
``http/``                 webhooks
``endpoints.py``          webhook endpoints that are kept in the database
``nats.py``               to NATS JetStream
``nats_link.py``          a connection to NATS
``rabbitmq.py``           to RabbitMQ
``rabbitmq_link.py``      a connection to RabbitMQ
``redis.py``              to Redis Streams
``faststream.py``         through a broker object of FastStream
``faststream_kinds.py``   what differs between FastStream's brokers
``conformance.py``        what every relay must do, as tests: for ours and your own
``conformance_cases.py``  what these send, and how they compare what arrived
========================  ========================================================================

A broker's module is imported on use: it needs the extra of its name.

Imports ``operations``, ``webhooks`` and the rooms below them.
"""

from .envelope import CloudEvents, Envelope, Plain
from .message import Answer, Message, Relay

__all__ = ["Answer", "CloudEvents", "Envelope", "Message", "Plain", "Relay"]
