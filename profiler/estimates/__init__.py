"""From runs to numbers."""
