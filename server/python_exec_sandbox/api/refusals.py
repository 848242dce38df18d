"""What a refusal to run says to a model, and whether a person must mend something first."""

from python_exec_sandbox.errors import (
    ConfigurationError,
    EngineUnreachable,
    ImageUnavailable,
    PythonUnavailable,
    RequestError,
    SandboxError,
)


def short_refusal(error: SandboxError) -> str:
    """The text of ``error`` with one of the addresses where no engine could be used; the pool logs them all."""
    text = str(error)
    if not any(isinstance(cause, EngineUnreachable) for cause in causes_of(error)):
        return text
    lines = text.splitlines()
    tried = [line for line in lines if line.startswith("  ")]  # it is indented
    cause = [line for line in tried if not line.startswith("  nothing at ")][:1]
    kept = [line.strip() for line in lines if line not in tried or line in cause]
    return " ".join(line if line.endswith((".", ":")) else f"{line}." for line in kept if line)


def is_for_a_person(error: SandboxError) -> bool:
    """Whether trying again is in vain until somebody mends the use, the settings or the engine."""
    from python_exec_sandbox.drivers.docker.failure import (
        EngineRefused,
        advice_for,
    )  # serving starts without it

    causes = causes_of(error)
    refusals = [cause for cause in causes if isinstance(cause, EngineRefused)]
    if any(refusal.is_transient for refusal in refusals):
        return False
    if any("--" in advice_for(refusal.said) for refusal in refusals):  # a setting that can be named is wrong
        return True
    lasting = ConfigurationError | RequestError | EngineUnreachable | ImageUnavailable | PythonUnavailable
    return any(isinstance(cause, lasting) for cause in causes)


def has_no_backend(error: SandboxError) -> bool:
    """Whether there is no engine, or no image: no sandbox at all can be made."""
    return any(isinstance(cause, EngineUnreachable | ImageUnavailable) for cause in causes_of(error))


def causes_of(error: BaseException) -> list[BaseException]:
    """``error`` and what it was raised from, outermost first."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    return causes
