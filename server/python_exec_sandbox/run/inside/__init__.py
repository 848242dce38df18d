"""Programs of ours that run inside a sandbox, as scripts do. Standard library only; nobody imports them but
tests: their text is sent."""
