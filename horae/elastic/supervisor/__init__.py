"""Outside the trainer: `horae-exec`, the parent that starts it, hears requests for it, and tells how it ended."""
