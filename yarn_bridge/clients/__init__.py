"""One client a daemon of Hadoop, and what their answers mean."""
