"""Amounts as people read them."""

_STEP = 1024


def show_bytes(count: int) -> str:
    """Such as ``512 MiB``, ``1.5 GiB``, ``17 bytes``."""
    if count < _STEP:
        return f"{count} byte" if count == 1 else f"{count} bytes"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= _STEP
        if round(amount, 1) < _STEP:
            return f"{amount:.1f}".removesuffix(".0") + f" {unit}"
    return f"{amount / _STEP:.1f}".removesuffix(".0") + " TiB"


def show_seconds(seconds: float) -> str:
    """Such as ``0.004 s``, ``0.42 s``, ``31.5 s``, ``30 s``; limits keep no needless digits."""
    if seconds < 0.1:
        shown = f"{seconds:.3f}"
    elif seconds < 10:
        shown = f"{seconds:.2f}"
    else:
        shown = f"{seconds:.1f}"
    return (shown.rstrip("0").rstrip(".") if "." in shown else shown) + " s"
