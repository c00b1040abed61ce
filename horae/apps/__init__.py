"""App schedulers: what Themis calls the upper level (NSDI 2020, §4.2.2, §4.3), as programs that a user runs.

An app is one training goal of several jobs (a sweep: `horae/sweeps/`). Its scheduler says how many jobs run for how
long (phases), bids for GPUs through the policy, and ends its losers.

  scheduler.py the scheduler as an object: the agent's questions of Fig. 7
  agent.py     the client's half of offer, bid and win; the arbiter's is horae/arbiter/requests/agents.py
"""
