"""The service that takes orders. Its relay forwards them to Kafka.

``app``     the web application, and the outbox with the relay
"""
