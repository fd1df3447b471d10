#!/usr/bin/env bash
# Runs every finding, each in an environment of its own; fails if one is no longer so.
cd "$(dirname "$0")"
changed=()
for script in *.sh; do
  case $script in all.sh | environment.sh) continue ;; esac
  echo "== ${script%.sh}"
  bash "$script" || changed+=("${script%.sh}")
done
if ((${#changed[@]})); then
  echo "no longer so: ${changed[*]}"
  exit 1
fi
