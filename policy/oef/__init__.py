"""OEF (Middleware 2024): optimal efficiency with fairness on mixed GPUs. `shares` the programs, `policy` the placer."""
