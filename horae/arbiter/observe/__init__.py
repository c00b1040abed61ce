"""What the cluster shows, made into facts of the journal: jobs, measurements, lessons, what a restart finds."""
