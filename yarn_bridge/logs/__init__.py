"""Logs of any YARN application, running or ended."""
