"""Relays: from the outbox to brokers and webhooks, in order per key, at least once.

====================================================================  ===========================
``outbox.relay(...)`` makes a listener that forwards                  ``declaring.py``
an event is put into a message                                        ``envelope.py``
messages go out, answers come back, order is kept                     ``forward.py``
what every relay is                                                   ``message.py``
====================================================================  ===========================

One module for each kind of other side, imported when it is asked for: it needs the extra of its
name.
"""

from .envelope import CloudEvents, Envelope, Plain
from .message import Answer, Message, Relay

__all__ = ["Answer", "CloudEvents", "Envelope", "Message", "Plain", "Relay"]
