"""Whose fault is it? Decides what an error says about an event.

==================  ==============================================================================
``attribution.py``  what an error in a session says about the attempt (pure)
``suspects.py``     events in flight when a connection was lost: which one is to blame (pure)
``quarantine.py``   events in flight when a process died: attempted alone, counted, convicted
                    (pure)
``refusals.py``     events that the database refuses to read or to settle, and reads that leave
                    them out
``bisection.py``    which event of a batch is at fault, by bisection (pure)
==================  ==============================================================================

Imports ``handler`` and ``connection``. docs/guarantees.md, "Whose fault is it?", has the argument.
"""
