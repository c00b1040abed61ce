"""App schedulers: what Themis calls the upper level (NSDI 2020, §4.2.2, §4.3).

An app is one training goal of several jobs (a sweep). Its scheduler says how many jobs run for how long (phases),
bids for GPUs through the policy, and ends its losers.

  sweep.py     the sweep file of `horae submit --sweep`, and the jobs it becomes
  schedules.py phases of successive halving and of Hyperband's brackets
  scheduler.py the scheduler as an object: the agent's questions of Fig. 7
  hook.py      what the arbiter asks each round: the apps of a pool, from its journal alone
  views.py     what people are shown of apps: phases, ranks, weights, bids
  agent.py     the client's half of offer, bid and win; the arbiter's is horae/arbiter/{offers,agents}.py

A scheduler's state is the `HORAE_SWEEP` variable of its jobs: it is journaled with the job's specification, survives
every restart and every adapter, and the trainer can read it.
"""
