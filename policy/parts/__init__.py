"""What policies are made of: speeds, places, gangs, rounding, orders, the solver."""
