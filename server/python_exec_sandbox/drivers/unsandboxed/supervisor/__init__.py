"""The process between the server and one script that runs on the machine itself.

Started by a bare interpreter without site-packages: everything here needs the standard library alone, and of
this package only what does likewise. When the server's end of its socket closes, for whatever reason, it
ends every process of the run, removes the run's folder and exits.
"""
