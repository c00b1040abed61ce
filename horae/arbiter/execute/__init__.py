"""From an admitted allocation to calls of the port: plan, intents, calls, outcomes."""
