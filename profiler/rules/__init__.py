"""What a line says."""
