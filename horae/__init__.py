"""Horae: fair, elastic GPU scheduling of deep-learning training on the clusters people already have."""

__version__ = "0.1.0"


def job_number(job: str) -> str:
    """The cluster's own number of the job `NUMBER.WHAT-MAKES-IT-UNIQUE`; the whole name where it has no dot."""
    return job.partition(".")[0]
