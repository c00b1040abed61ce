"""Text in and out: instance files with line numbers, answers, YAML."""
