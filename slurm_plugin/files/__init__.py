"""Files that the cluster's nodes and users share with us: the spool, and ways to reach it."""
