"""Webhooks: one POST for each event, signed, and only to where somebody wants it to go.

====================================================================  ===========================
a message is posted and its answer judged                             ``webhook.py``
one request goes out, and not too much of an answer comes back        ``exchange.py``
which answers are success, a retry, or the end                        ``answers.py``
one host that is down is not attempted for every event                ``breaker.py``
connections that are idle are used again                              ``connections.py``
a name is resolved once, each address checked, and dialled            ``dialling.py``
which addresses are nobody's business                                 ``addresses.py``
an address as it is written, taken apart once                         ``target.py``
secrets, by name or by value                                          ``secret.py``
====================================================================  ===========================

Needs the extra ``sa_outbox[http]``. The signature is of ``sa_outbox.webhooks``, which receivers use
without it.
"""

from sa_outbox.errors import ConfigError

try:
    import httpcore2 as _httpcore2  # noqa: F401 - to say which extra is missing
except ModuleNotFoundError as _error:  # pragma: no cover - the extra is installed where tests run
    raise ConfigError('webhooks need httpcore2: pip install "sa_outbox[http]"') from _error

from .secret import Secret
from .webhook import RETRY, Webhook

__all__ = ["RETRY", "Secret", "Webhook"]
