"""A shop with a stock: sync sessions, sync handlers, one psycopg engine.

``database``    the engine, the outbox, and their sessions
``models``      the tables
``app``         the web application: adds events
``listeners``   what follows from an event
"""
