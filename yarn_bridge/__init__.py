"""The room of the Hadoop YARN adapter. It is empty: no `horae.clusters` entry point leads here yet."""
