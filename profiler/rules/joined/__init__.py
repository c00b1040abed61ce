"""Lines of which several make one, made one before anything reads them."""
