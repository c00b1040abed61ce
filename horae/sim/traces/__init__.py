"""Traces: jobs as they were handed in, of every form that clusters and papers publish."""
