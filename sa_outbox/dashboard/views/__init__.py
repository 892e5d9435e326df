"""The pages: functions from data to HTML. They query nothing and change nothing.

==========================  ======================================================================
``layout.py``               the frame of every page
``parts.py``                times, figures, states, tables, pagers
``chart.py``                lines over time, as SVG
``overview.py``             the first page
``listener_state.py``       a listener's state, as a word and a tone
``listeners.py``            all listeners, and one
``listener_actions.py``     what can be done to one
``deliveries.py``           what runs and what waits
``delivery_actions.py``     retrying and cancelling: the confirmation, and what came of it
``events.py``               finding events, and one with its path
``causation.py``            what caused an event, and what it caused
``dead_letters.py``         the list, and one with what is known of it
``dead_letter_groups.py``   the dead letters by error
``attempt_errors.py``       the errors of every attempt, with their tracebacks
``dead_letter_actions.py``  what can be done to them, and the edit
``crons.py``                recurring events, and the confirmation to run one now
``endpoints.py``            webhook endpoints, without their secrets
``catalogue.py``            event types, and the fields of one
``audit.py``                what was done, by whom and why
``durations.py``            how long handlers take
``fault.py``                what went wrong, and the page that asks who you are
==========================  ======================================================================

Imports ``assets``, ``comparison``, ``guard``, ``history``, ``html``, ``payloads`` and the rooms
below them.
"""
