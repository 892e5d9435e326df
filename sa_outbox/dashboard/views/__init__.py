"""The pages: functions from data to HTML. They query nothing and change nothing.

==========================  ======================================================================
``layout.py``               the frame of every page
``parts.py``                times, figures, states, tables, pagers
``chart.py``                lines over time, as SVG
``overview.py``             the first page
``listener_state.py``       a listener's state, as a word and a tone
``listeners.py``            all listeners, and one
``listener_actions.py``     what can be done to one
``events.py``               finding events, and one with its path
``dead_letters.py``         the list, and one with the errors of every attempt
``dead_letter_actions.py``  what can be done to them, and the edit
``fault.py``                what went wrong, and the page that asks who you are
==========================  ======================================================================
"""
