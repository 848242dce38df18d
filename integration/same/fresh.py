"""Runs inside a container, as the script's user: each script under a fresh ``uv run``, as a person would.

Reads the scripts (JSON, name -> text) from the file named first; writes JSON into the one named last, name ->
[exit code, stdout, stderr] with the bytes as Latin-1 text. The environment is the one that the runner makes.
"""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, "/opt/sandbox")

from runner.options import Options  # noqa: E402 - found through the line above

WRITABLE = ("/work", "/tmp", "/home/sandbox", "/dev/shm")  # noqa: S108 - the sandbox's own


def wipe() -> None:
    for folder in WRITABLE:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def main() -> None:
    scripts, python, answer = sys.argv[1:4]
    place = Options.parse(["--python", python]).place
    os.umask(0o022)
    results = {}
    with open(scripts, encoding="utf-8") as file:
        corpus = json.load(file)
    for name, script in corpus.items():
        wipe()
        with open(place.script, "wb") as file:
            file.write(script.encode())
        command = [place.uv, "run", "--quiet", "--no-project", "--offline", "--python", python, "python", place.script]
        done = subprocess.run(
            command, input=b"", capture_output=True, cwd=place.work, env=place.environment, start_new_session=True, check=False
        )
        results[name] = [done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")]
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(results, file)


main()
