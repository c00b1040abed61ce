"""Horae: fair, elastic GPU scheduling of deep-learning training on the clusters people already have."""

__version__ = "0.1.0"
