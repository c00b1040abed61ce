"""What runs on the nodes, beside the trainer: standard library and `horae.elastic` only, Python 3.7+; it is carried."""
