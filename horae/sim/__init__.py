"""What would have happened: traces of real clusters under any policy, by the code that decides in production."""
