"""One control group per sandbox: its limits, what was counted, and the end of everything in it."""
