"""Deciding many times: changed reports, rounds in a row, batches."""
