"""A user of its own for each sandbox.

The kernel counts inotify instances, pipe pages, message queues, pending signals and keys per user id, across
all containers. Two scripts under one id could take them from each other, and under a person's own id (1000,
mostly) from that person's desktop.
"""

# Nobody's: below the 65,536 ids that a rootless engine has, above those of people and services, below systemd's
# ranges (61184 on). The image names all of them; it and the runner's default must agree with these.
FIRST_UID = 58000
UID_COUNT = 1024

SCRIPT_GID = 1000
"""Nothing is counted per group, so that one does for all."""
