"""One snapshot, one question, one answer: what a policy is asked, the process that it runs in, what it may say."""
