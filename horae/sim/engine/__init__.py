"""Two engines over one world: the fast one asks the policy alone, the other runs the arbiter's own code.

`world.py` is what is true (jobs, GPUs, progress), `workload.py` a trace as jobs of it, `cluster.py` its nodes,
`asking.py` the policy, asked once a moment, `reviews.py` when a policy's own order changes. `fast.py` and `arbiter.py`
move time from one moment that can change something to the next.
"""
