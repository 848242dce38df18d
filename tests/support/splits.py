"""Ways to cut a byte stream into the pieces in which it might arrive."""

from itertools import pairwise

from hypothesis import strategies as st


def splits(stream: bytes) -> st.SearchStrategy[list[bytes]]:
    """Lists of pieces, some possibly empty, that together are ``stream``."""
    cuts = st.lists(st.integers(0, len(stream)), max_size=10)
    return cuts.map(lambda places: [stream[a:b] for a, b in pairwise([0, *sorted(places), len(stream)])])
