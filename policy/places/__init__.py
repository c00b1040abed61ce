"""Which GPUs on which nodes: gangs, shapes, nothing left idle."""
