"""What policies are made of: gangs, rounding, orders, the solver, a decision in the middle of being carried out."""
