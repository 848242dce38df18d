#!/bin/sh
# Makes each version asked for available to uv: one that the base image has, else one of uv's own.
# Writes /opt/sandbox/pythons.json (version -> interpreter) and /opt/sandbox/python, which the runner uses.
set -eu

export UV_PYTHON_INSTALL_DIR=/opt/python
mkdir -p /opt/sandbox
separator='{'
for version in "$@"; do
    if ! path=$(UV_PYTHON_DOWNLOADS=never uv python find --no-config "$version" 2>/dev/null); then
        uv python install --no-config --no-bin "$version"
        path=$(UV_PYTHON_DOWNLOADS=never uv python find --no-config "$version")
    fi
    printf '%s"%s": "%s"' "$separator" "$version" "$path" >> /opt/sandbox/pythons.json
    separator=', '
    [ -e /opt/sandbox/python ] || ln -s "$path" /opt/sandbox/python
done
printf '}\n' >> /opt/sandbox/pythons.json
