"""A small cluster on this machine, tenants that train on it, and a view of who gets what."""
