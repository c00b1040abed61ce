"""From lines to runs."""
