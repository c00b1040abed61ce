"""Who may know what: what is public, what the cluster itself hides, and what is left of an answer for its caller."""
