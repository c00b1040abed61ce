"""The live picture of a cluster: `view.py` is what it shows, `parts.py` draws it, `app.py` lets people walk in it.

`horae top`, `horae top --once` and `horae demo` draw the same view with the same parts.
"""
