"""What a real cluster does to a policy: profiles that are off, tenants that lie, nodes that are slow for a while, apps
that end their worst jobs.

`told.py` makes of a true job what policies are told of it, `pace.py` says how fast nodes are when, `sweeps.py` what
losses jobs show and where the phases of their apps end. All of it follows from the seed alone.
"""
