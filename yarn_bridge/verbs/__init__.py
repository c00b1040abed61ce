"""What the port asks of this adapter: look (`observer`), act (`executor`), follow up (`steps`)."""
