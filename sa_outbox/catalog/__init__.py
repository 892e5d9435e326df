"""The catalogue: which events there are, what is in them, and who reads them.

======================  ==========================================================================
``contents.py``         what is listed: event types, and who reads each
``payload_schema.py``   the schemas of a class: what its library reads, and what it writes
``pydantic_schema.py``  the same from pydantic (imported on use)
``dialect.py``          schemas in one dialect and one place
``headers.py``          what surrounds a payload
``relays.py``           the channels that relays send to
``document.py``         AsyncAPI 3, and JSON Schema alone
``change.py``           a difference between a committed catalogue and the program
``committed.py``        a catalogue as it is read, from a file or of the program
``alternatives.py``     a schema as the alternatives that it consists of, and in words
``containment.py``      whether whatever fits one schema fits another
``differences.py``      what is different between two schemas
``comparison.py``       a committed catalogue and the program: what changed, what that breaks
``relay_changes.py``    what changed for receivers of relays
``wording.py``          what a misfit means for whom, and what to do about it
======================  ==========================================================================

Schemas come from the library that reads the class. Nothing here needs a database.

Imports ``outbox`` and the rooms below it.
"""

from .change import Change
from .comparison import compare
from .document import asyncapi, json_schema

__all__ = ["Change", "asyncapi", "compare", "json_schema"]
