"""Plain data that travels between the layers; imports only errors."""
