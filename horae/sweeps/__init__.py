"""Sweeps: what a user asks for in a sweep file, the jobs it becomes, and how the arbiter knows them again.

A sweep's state is the `HORAE_SWEEP` variable of its jobs: it is journaled with the job's specification, survives
every restart and every adapter, and the trainer can read it.

  sweep.py     the sweep file of `horae submit --sweep`, and the jobs it becomes
  schedules.py phases of successive halving and of Hyperband's brackets
  hook.py      what the arbiter asks each round: the apps of a pool, from its journal alone
"""
