"""What people call a job. Apart from the port, so that a command that only shows jobs loads no more."""

from __future__ import annotations


def job_number(job: str) -> str:
    """The cluster's own number of the job `NUMBER.WHAT-MAKES-IT-UNIQUE`; the whole name where it has no dot."""
    return job.partition(".")[0]
