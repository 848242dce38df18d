"""Which system calls a sandbox may make, as a program for the kernel's filter; pure, no library needed."""
