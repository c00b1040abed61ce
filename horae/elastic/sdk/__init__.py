"""Inside the trainer: resume, train, save, leave."""
