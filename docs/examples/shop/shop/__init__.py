"""A shop: orders, their invoices, and the mails about them.

``settings``    what the environment says
``models``      the tables
``events``      what happens to an order, as classes
``database``    the engine, the outbox, and the sessions that both share
``app``         the web application: adds events
``listeners``   what follows from an event
``consumer``    the process that calls the listeners
``logs``        one format for all lines
"""
