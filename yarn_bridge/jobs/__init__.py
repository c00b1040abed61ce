"""What becomes of a job on YARN: its record, what it needs next, what its owner may write, what nodes have room for."""
