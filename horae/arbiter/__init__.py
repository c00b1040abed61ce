"""The arbiter: observe, decide, admit, execute (`round.py`), and what people ask of it."""
