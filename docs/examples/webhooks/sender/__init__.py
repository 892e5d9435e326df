"""A shop that tells other systems about its orders. Which systems: they are in the database.

``app``     the web application, and the outbox that serves the endpoints
"""
