"""What words beside numbers mean, in the languages that are known, and what their units are."""
