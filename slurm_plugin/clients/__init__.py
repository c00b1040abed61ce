"""The ways to talk to Slurm. Each is a set of routes, one an operation; what one cannot do goes by the next."""
