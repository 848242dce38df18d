"""What is known of the names of modules: which package brings one, and which none does."""

import sys

_PACKAGES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools<81",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "usb": "pyusb",
    "yaml": "pyyaml",
}
"""Modules whose package has another name; only those that are asked for often."""

_BY_LOWER_CASE = {module.lower(): package for module, package in _PACKAGES.items()}

# fmt: off
_REMOVED = frozenset({
    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "imp",
    "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau",
    "telnetlib", "uu", "xdrlib",
})
# fmt: on
"""Once part of Python, gone from 3.13; this process's own Python may be older and know them still."""


def package_of(module: str) -> str | None:
    """The package that brings ``module``, where it has another name; upper and lower case count alike, as
    they do in names of packages."""
    return _BY_LOWER_CASE.get(module.lower())


def is_removed(module: str) -> bool:
    """Whether no Python that scripts run with has ``module`` any more."""
    return module in _REMOVED


def is_standard(module: str) -> bool:
    """Whether ``module`` belongs to Python itself: no package brings it."""
    return module in sys.stdlib_module_names and not is_removed(module) and not package_of(module)
