"""Hadoop YARN: the cluster's REST interfaces as typed clients, and the adapter that is made of them."""
