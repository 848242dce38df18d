"""What a model is told of a server that doesn't, or may not, put scripts into sandboxes. Pure."""

from python_exec_sandbox.run.units import show_bytes
from python_exec_sandbox.settings import Settings


def tool_title(settings: Settings) -> str:
    """The name of the tool ``execute_python`` for a person."""
    if settings.is_unsandboxed:
        return "Run a Python script on this machine (not sandboxed)"
    return "Run a Python script in a sandbox"


def fallback_words(settings: Settings) -> str:
    """A sentence to append, with a blank before it; empty unless the person allowed it."""
    if not settings.allow_unsandboxed:
        return ""
    return " NOT sandboxed when no sandbox can be made: the script then runs on the user's machine; the answer says so."


def unsandboxed_description(settings: Settings) -> str:
    """Of the tool; at most 1,000 characters, or clients cut it."""
    return (
        "Run a Python script directly on the user's machine, NOT sandboxed, as the user chose, and return how it ended and"
        " what it printed (stdout and stderr). It has the user's rights: it can read, change and delete their files."
        " Its working folder, home and TMPDIR are empty and are removed afterwards; print what you want to know."
        f" Output over {settings.show_chars} characters is cut in the middle."
        " Packages beyond the standard library are installed before the run when named in dependencies or in a"
        ' "# /// script" block (PEP 723).'
        f" Run time: {settings.default_timeout:g} s by default, at most {settings.max_timeout:g} s."
        f" Limits: {_limits(settings)}."
        " A failed, stopped or timed out script is marked as an error and still returns its output."
    )


def unsandboxed_instructions(settings: Settings) -> str:
    """For a client to tell its model; at most 2,000 characters, or clients cut it."""
    return (
        "Runs Python scripts directly on the user's machine, NOT sandboxed, because the user started the server so. A script"
        " has the user's rights: ask before anything that changes or deletes what is theirs. Each call is a fresh process"
        " in an empty working folder that is removed afterwards; packages are those named in dependencies. One script"
        " must do the whole job and print what you want to know."
        f" Of output over {settings.show_chars} characters only the beginning and the end are shown."
        f" Limits: {_limits(settings)}, {settings.default_timeout:g} s run time unless timeout_seconds says otherwise"
        f" (at most {settings.max_timeout:g} s)."
        " The first line of an answer says how the script ended; a traceback carries the line numbers of the"
        " script as you sent it."
    )


def _limits(settings: Settings) -> str:
    limits = settings.sandbox_limits()
    return f"{show_bytes(limits.memory_bytes)} memory a process, {show_bytes(limits.disk_bytes)} a file"
