"""What becomes of a job on Slurm: what is seen, what it needs next, what is written."""
