"""Makes environments of packages in the store that scripts see read-only.

A container of its own runs it, with the network and with write access to the store; no script is ever there,
and no code of a package runs: wheels only, and nothing starts an environment's Python once packages are in it.
What has no wheel is built in another container (``from_source.py``), where there is no store.
Standard library only, Python 3.11 or later, Linux. One request comes as a line of JSON on stdin, progress and
the result go as lines of JSON to stdout (the server's ``stream/building.py`` describes them). When stdin ends,
everything ends.
"""
