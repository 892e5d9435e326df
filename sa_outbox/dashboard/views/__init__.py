"""The pages: functions from what was read to HTML. They ask nothing and change nothing."""
