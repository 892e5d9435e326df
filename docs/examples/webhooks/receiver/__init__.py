"""Another company's system, which is sent the orders and counts points for its customers.

``app``     the web application that takes webhooks
"""
