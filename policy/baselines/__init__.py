"""Policies that the papers compare with, each by its own paper."""
