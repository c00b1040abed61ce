"""What carries a job on YARN: services or slices of GPUs, and which of them where."""
