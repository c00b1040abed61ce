"""What comes from others: locks, the check of imports, the bill of materials. See README.md beside this file."""
