"""Decide who gets which GPUs: pure functions of a snapshot, no clock, no I/O.

Read `model.py` first (what a snapshot and a decision are), then `decide.py` (how a policy is run), then any
policy: each reads like its paper.
"""
