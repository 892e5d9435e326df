"""The service that packs parcels. It has its own database, and an outbox in it.

``database``    the engine, the outbox, and their sessions
``models``      its table
``receive``     from Kafka into its own log, each message once
``listeners``   what it does about them, with retries and dead letters
"""
