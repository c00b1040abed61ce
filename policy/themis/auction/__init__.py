"""The partial-allocation auction: bids' rows, winners, payments, what is left over, whole GPUs on nodes."""
