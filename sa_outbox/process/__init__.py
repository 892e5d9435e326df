"""What a consumer process has beyond its consumer.

=====================  ============================================================================
``options.py``         the settings of a consumer as options and environment variables
``waiting.py``         the database may come up after the process
``monitoring.py``      the monitor: its options
``garbage.py``         how often Python looks for cycles
``streams.py``         standard streams that somebody has closed
``stopping.py``        signals, exit codes, and the end by force
=====================  ============================================================================
"""
