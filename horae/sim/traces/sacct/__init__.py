"""What `sacct -a -D -P -o ...` prints: rows, and the jobs that they are parts of.

One row may be a step, an incarnation of a job that was requeued, a task of an array, what is left of an array that
waits, or a part of a heterogeneous job. `COMMAND` prints what is read here.
"""

COLUMNS = (
    "JobIDRaw",
    "JobID",
    "User",
    "Account",
    "State",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "AllocTRES",
    "ReqTRES",
    "NodeList",
)

COMMAND = f"SLURM_BITSTR_LEN=0 SLURM_TIME_FORMAT=%s sacct -a -D -P -S 2025-01-01 -E now -o {','.join(COLUMNS)}"
