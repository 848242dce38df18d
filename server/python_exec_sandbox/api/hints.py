"""What a caller may have overlooked, read from how a run ended."""

import re

from python_exec_sandbox.model.result import Verdict
from python_exec_sandbox.run.records import RunResult

LAST_TRACEBACK_CHARACTERS = 2000
"""The end of stderr in which a traceback's last line is looked for."""

DISTRIBUTIONS = {
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "usb": "pyusb",
    "yaml": "pyyaml",
}
"""Packages whose import has another name; only those that are asked for often."""

_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]{1,100})'", re.MULTILINE)
_END_OF_INPUT = re.compile(r"^EOFError: EOF when reading a line", re.MULTILINE)


def hints(result: RunResult, stderr: str) -> list[str]:
    """Sentences of advice; ``stderr`` is its cleaned text, at least the end of it."""
    if result.verdict is Verdict.OK and not (result.stdout.total_bytes or result.stderr.total_bytes):
        return ["No output: did you forget print()?"]
    if result.verdict is not Verdict.FAILED:
        return []
    last = stderr[-LAST_TRACEBACK_CHARACTERS:]
    found = []
    if missing := _MISSING_MODULE.search(last):
        found.append(_name_the_package(missing[1].partition(".")[0]))
    if _END_OF_INPUT.search(last) and not result.stdin_given:
        found.append("The script asked for input, and there was none: give it with the stdin argument.")
    return found


def _name_the_package(module: str) -> str:
    package = DISTRIBUTIONS.get(module, module)
    return (
        f'To install the package, name it in the dependencies argument (["{package}"]) or in a block at the '
        f'top of the script: # /// script, # dependencies = ["{package}"], # /// on three lines (PEP 723).'
    )
