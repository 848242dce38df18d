"""What an engine's refusal means, and what a person can do about it. Knows texts, not the SDK."""

import re

from python_exec_sandbox.errors import CreateFailed, DriverError, ImageUnavailable

# An engine's text can quote a whole build log.
_QUOTE_CHARS = 600

# Of what is no engine's text at all.
_GARBAGE_CHARS = 200


def quote(text: str, limit: int = _GARBAGE_CHARS) -> str:
    """At most ``limit`` characters of ``text``, all printable, in one line; fit for a message or a log."""
    # Cut first: what is looked at may be megabytes of anything.
    shown = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


class EngineRefused(DriverError):
    """The engine answered a call with an error: its HTTP status and its own words."""

    def __init__(self, doing: str, status: int, said: str) -> None:
        self.status = status
        self.said = quote(said, _QUOTE_CHARS) or "(no reason given)"
        super().__init__(f"The container engine refused to {doing} (status {status}): {self.said}")

    @property
    def is_missing(self) -> bool:
        """Whether the thing asked about doesn't exist."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether something of that name exists already."""
        return self.status == 409 or "already exists" in self.said

    @property
    def is_being_removed(self) -> bool:
        """Whether someone else's removal of the same container is already going on."""
        return self.status == 409 and "already in progress" in self.said

    @property
    def is_transient(self) -> bool:
        """Whether the same call may well succeed a moment later."""
        return self.status in {429, 502, 503, 504} or bool(_TRANSIENT.search(self.said))


_TRANSIENT = re.compile(
    r"timeout|timed out|connection (reset|refused)|unexpected EOF|\bEOF$|toomanyrequests|too many requests"
    r"|temporary failure|server misbehaving|TLS handshake|bad gateway|service unavailable",
    re.IGNORECASE,
)

_NO_IMAGE = re.compile(r"no such image|image not known", re.IGNORECASE)

# A part of what engines say -> what to do. The first match counts.
_ADVICE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (
            r"unknown( or invalid)? runtime|runtime .* not found",
            "The runtime asked for isn't known to the engine: install it there, or leave out --runtime.",
        ),
        (r"no space left on device", "The engine's disk is full: `docker system prune` frees room."),
        (
            r"cannot allocate memory|out of memory",
            "The engine's machine has too little free memory: lower --memory or the number of sandboxes.",
        ),
        (
            r"range of cpus is from",
            "The engine has fewer processors than a sandbox may use: lower --cpus.",
        ),
        (
            r"minimum memory limit|smaller than .* memory",
            "The memory limit is too small for a container: raise --memory.",
        ),
        (
            r"bind source path does not exist|mounts denied|not shared from the host",
            "The engine can't see the CA bundle's file: put it in a folder that Docker Desktop shares.",
        ),
        (
            r"cfs scheduler|pids limit capabilit|cgroup.*(not mounted|no such file|not supported)",
            "The engine's kernel lacks a control group that the limits need: enable cpu, memory and pids.",
        ),
        (
            r"network (bridge )?(\S+ )?not found|failed to (set up container networking|create endpoint)|iptables",
            "The engine can't connect a container to its network: restart the engine, or use --network none.",
        ),
        (
            r"non-overlapping IPv4 address pool|address pools .* subnetted",
            "The engine has no addresses left for a network: `docker network prune` frees those nobody uses.",
        ),
        (
            r"exec format error",
            "The image is of another processor architecture than the engine's machine.",
        ),
        (
            r"no such file or directory|executable file not found|permission denied.*exec",
            "The image doesn't hold the sandbox's runner: leave --image unset to have it built.",
        ),
        (
            r"disk quota|too many open files",
            "The engine's machine is at one of its own limits: restart the engine.",
        ),
    )
)


def advice_for(said: str) -> str:
    """What a person can do when an engine says this; ``""`` when it isn't known."""
    return next((advice for pattern, advice in _ADVICE if pattern.search(said)), "")


def create_failure(refusal: EngineRefused, image: str) -> DriverError:
    """The error for a sandbox that could not be made from ``image``."""
    if _NO_IMAGE.search(refusal.said):
        return ImageUnavailable(
            f"The sandbox image {image} has gone from the engine; it is made or pulled again at the next try."
        )
    advice = advice_for(refusal.said)
    return CreateFailed(f"{refusal} {advice}".rstrip())


def connect_advice(error: OSError) -> str:
    """Why a connection to an engine failed, and what to do, in one sentence each."""
    cause = _root_cause(error)
    match cause:
        case PermissionError():
            return (
                "this user may not open the engine's socket (on Linux: `sudo usermod -aG docker $USER`, "
                "then log in again)"
            )
        case ConnectionRefusedError():
            return "nothing listens there: the engine isn't running"
        case FileNotFoundError():
            return "the socket doesn't exist: the engine isn't running"
        case _:
            return quote(str(cause)) or type(cause).__name__


def _root_cause(error: BaseException) -> BaseException:
    """HTTP libraries wrap the system's error several times, as an argument or as the context."""
    for _ in range(8):  # more layers than any of them uses; a ring must not hang us
        inner = error.__cause__ or error.__context__
        if inner is None:
            inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if inner is None or (isinstance(error, OSError) and error.errno is not None):
            break
        error = inner
    return error
