"""Every statement of the package: functions that build it and do not run it.

The same builder serves sync and async callers. A docstring says what the statement returns, which
rows it locks and which index serves it. No other module contains SQL.
"""
