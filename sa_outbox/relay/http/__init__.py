"""Webhooks: one signed POST per event, and only to addresses that are allowed.

==================  ==============================================================================
``webhook.py``      posts a message and evaluates the response
``headers.py``      the headers: the message's own, sanitised, and ours
``exchange.py``     sends one request and reads a bounded response
``answers.py``      which responses mean success, retry, or give up
``breaker.py``      does not attempt every event on a host that is down
``connections.py``  reuses idle connections
``dial.py``         resolves a name once, checks each address, and dials
``addresses.py``    which addresses are allowed
``target.py``       parses a URL once
``secret.py``       secrets, by name or by value
==================  ==============================================================================

Needs the extra ``sa_outbox[http]``. The signature comes from ``sa_outbox.webhooks``, which
receivers use without it.

Imports ``errors`` and the rooms below it.
"""

from sa_outbox.errors import ConfigError

try:
    import httpcore2 as _httpcore2  # noqa: F401 - to say which extra is missing
except ModuleNotFoundError as _error:  # pragma: no cover - the extra is installed where tests run
    raise ConfigError('webhooks need httpcore2: pip install "sa_outbox[http]"') from _error

from .secret import Secret
from .webhook import RETRY, Webhook

__all__ = ["RETRY", "Secret", "Webhook"]
