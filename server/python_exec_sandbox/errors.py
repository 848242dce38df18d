"""Every exception this package raises on purpose.

::

    SandboxError
    ├── ConfigurationError        a setting is wrong; the command ends with exit code 2
    ├── RequestError              the call is wrong and its caller can mend it
    ├── PoolError                 no sandbox could be given
    │   ├── PoolBusy              the queue is full; refused at once
    │   ├── PoolTimeout           waited as long as allowed
    │   ├── PoolUnavailable       sandboxes can't be made now; names the last cause
    │   └── PoolClosed            the server is shutting down
    └── DriverError               the place where sandboxes are made failed
        ├── EngineUnreachable     no engine, or it doesn't answer
        ├── ImageUnavailable      the sandbox image is missing and could not be made
        ├── PythonUnavailable     sandboxes don't have that version; others can be made
        ├── CreateFailed          the engine refused to make or start a sandbox
        └── ProtocolViolation     a sandbox spoke something that isn't the runner protocol

How a *script* ends is never an exception but a :class:`~python_exec_sandbox.model.result.Verdict`.
A message says what happened, which number met which limit, and what to do.
"""


class SandboxError(Exception):
    """Base of all errors raised on purpose; its text is fit for a person."""


class ConfigurationError(SandboxError):
    """A setting is wrong or contradicts another."""


class RequestError(SandboxError):
    """The call can't be carried out as it is; its caller can mend it."""


class PoolError(SandboxError):
    """No sandbox could be given to a run."""


class PoolBusy(PoolError):
    """The queue for sandboxes is full."""


class PoolTimeout(PoolError):
    """No sandbox became free within the time allowed."""


class PoolUnavailable(PoolError):
    """Sandboxes can't be made at present; the text names the last cause and the next attempt."""


class PoolClosed(PoolError):
    """The pool is closing and gives no more sandboxes."""


class DriverError(SandboxError):
    """The driver could not do what it was asked."""


class EngineUnreachable(DriverError):
    """There is no container engine, or it doesn't answer."""


class ImageUnavailable(DriverError):
    """The sandbox image is missing and could not be built or pulled."""


class PythonUnavailable(DriverError):
    """A sandbox of this Python version can't be made; it says nothing about other versions."""


class CreateFailed(DriverError):
    """A sandbox could not be made or started."""


class ProtocolViolation(DriverError):
    """A sandbox sent bytes that the runner protocol doesn't allow."""
