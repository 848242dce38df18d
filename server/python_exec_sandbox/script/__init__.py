"""A script's text, and what it says of itself; text in, text out."""
