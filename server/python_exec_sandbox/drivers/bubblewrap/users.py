"""A user of its own for each sandbox, where the server is root.

Started by root, even a sandbox in a user namespace without capabilities can write what belongs to root in
``/proc/sys``; so another user starts it. The kernel also counts things (inotify, pipes, keys) per user.
"""

# Nobody's: above those of people and services, below the docker driver's and systemd's ranges.
FIRST_UID = 56_000
UID_COUNT = 1024

# Who owns the store of packages and fills it, where the server is root; no script is ever this one.
BUILDER_UID = FIRST_UID - 1
