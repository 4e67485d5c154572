#!/usr/bin/env bash
# All of `./dev lint`: the linter's own tests, the rules, the format, and clang-tidy on demand.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." || exit

tidy=
paths=()
for argument in "$@"; do
  case "$argument" in
    --tidy) tidy=1 ;;
    -*) echo "lint: no option '$argument'" >&2; exit 2 ;;
    *) paths+=("$argument") ;;
  esac
done

status=0
for tests in tools/lint_test.py tools/tooling_test.py; do
  said="$(python3 "$tests" 2>&1)" || { echo "$said"; status=1; }
done
library=()
[[ -e build/release/lib/client/libcuda.so.1 ]] && library=(--library build/release)
python3 tools/lint.py "${library[@]}" "${paths[@]}" || status=1
python3 tools/format.py --check "${paths[@]}" || status=1

if [[ -n "$tidy" ]]; then
  tools/setup.sh --tidy
  # In a build of its own each source has a command: others compile several at a time.
  apart=(-DFLYT_JOIN=OFF -DFLYT_PRECOMPILE=OFF)
  cmake --preset dev -B build/tidy "${apart[@]}" --log-level=NOTICE >/dev/null || exit 1
  cmake --build build/tidy --target flyt_messages flyt_generated || exit 1
  python3 tools/format.py --list "${paths[@]}" | grep -E '^(src|bench)/.*\.cc$' |
    xargs -r -P "$(nproc)" -n 1 clang-tidy-14 -p build/tidy --quiet \
      --extra-arg=-Wno-unknown-warning-option \
      --extra-arg=-Wno-unused-command-line-argument 2>/dev/null || status=1
fi
exit "$status"
