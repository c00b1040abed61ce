"""From bytes to the logical lines of one rank."""
