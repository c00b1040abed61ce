"""Which GPUs on which nodes: gangs, shapes, nothing left idle, a decision in the middle of being carried out."""
