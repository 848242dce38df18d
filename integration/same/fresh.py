"""Runs inside a container, as the script's user: each script under a fresh ``uv run``, as a person would.

Reads the scripts (JSON, name -> text) from the file named first; writes JSON into the one named last, name ->
[exit code, stdout, stderr] with the bytes as Latin-1 text. The environment is the one that the runner makes.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/opt/sandbox")

from runner.options import Options

WRITABLE = ("/work", "/tmp", "/home/sandbox", "/dev/shm")


def wipe() -> None:
    for folder in WRITABLE:
        for entry in Path(folder).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def main() -> None:
    scripts, python, answer = sys.argv[1:4]
    place = Options(["--python", python]).place
    os.umask(0o022)
    results = {}
    corpus = json.loads(Path(scripts).read_text(encoding="utf-8"))
    for name, script in corpus.items():
        wipe()
        Path(place.script).write_bytes(script.encode())
        command = [
            place.uv,
            "run",
            "--quiet",
            "--no-project",
            "--offline",
            "--python",
            python,
            "python",
            place.script,
        ]
        done = subprocess.run(
            command,
            input=b"",
            capture_output=True,
            cwd=place.work,
            env=place.environment,
            start_new_session=True,
            check=False,
        )
        results[name] = [done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")]
    Path(answer).write_text(json.dumps(results), encoding="utf-8")


main()
