"""The first process of every sandbox: runs one script for the server at the other end of its stdin and stdout.

Standard library only, Python 3.11 or later, Linux. The protocol is described in the server's
``stream/protocol.py``. The server believes nothing of what comes from here but what it checked.
"""
