"""One module a form of trace: a file's lines in, rows with their jobs out."""
