"""What each kind of event does to the ledger, by what it is about. No clock, no configuration, no I/O."""
