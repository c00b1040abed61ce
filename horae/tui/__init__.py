"""What a terminal shows: plain columns, colours, forms of numbers, the live picture."""
