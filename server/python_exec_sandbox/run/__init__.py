"""One run from request to verdict."""
