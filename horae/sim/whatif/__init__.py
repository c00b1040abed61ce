"""What would have happened to a site's own jobs: its history, a replay of it, the same jobs under other policies."""
