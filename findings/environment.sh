# Sourced by the scripts beside it: runs Python from standard input in a new environment.
#
#   in_environment PACKAGE==VERSION ... <<'PYTHON'
#
# PYTHON names the interpreter, of version 3.12 or later (default: python3.12).
set -euo pipefail

in_environment() {
  folder=$(mktemp -d) # not local: the trap needs it
  trap 'rm -rf "$folder"' EXIT
  "${PYTHON:-python3.12}" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"
  (cd "$folder" && exec venv/bin/python -W ignore -)
}
