"""Where checkpoints and documents lie: folders, HDFS, and what keeps them whole."""
