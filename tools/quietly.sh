#!/usr/bin/env bash
# Runs a command whose output matters only if it fails:  tools/quietly.sh WHAT COMMAND [ARGS ...]
set -euo pipefail
what="$1"
shift
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
(
  # Only what takes long says that it is at work.
  sleep 3
  echo "$what ..." >&2
) &
notice=$!
status=0
"$@" >"$log" 2>&1 || status=$?
kill "$notice" 2>/dev/null || true
if ((status != 0)); then cat "$log" >&2; fi
exit "$status"
