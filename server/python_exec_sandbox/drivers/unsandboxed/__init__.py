"""Scripts on the machine itself, for those who asked for it: no sandbox at all, but limits and an end."""
