"""What people are shown, derived from the ledger. Pure; nobody reads a view to decide."""
