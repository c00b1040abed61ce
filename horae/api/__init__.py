"""The arbiter's interface for everybody else: JSON over a unix socket, and the client that the command line uses.

`forms.py` is what may be sent, `access.py` who may do and see what, `server.py` the routes, `peers.py` how the
kernel tells who calls, `errors.py` what a refusal looks like, `metrics.py` the numbers for Prometheus, `client.py`
the other end.
"""
