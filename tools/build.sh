#!/usr/bin/env bash
# Configures a preset if need be and builds it:  tools/build.sh PRESET [TARGET ...]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
preset="$1"
shift
export NINJA_STATUS="[%f/%t %es] "

# A configuration that failed half-way, or of another place, is made again.
if [[ ! -f "build/$preset/build.ninja" ]] ||
  ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "build/$preset/CMakeCache.txt"; then
  rm -rf "build/$preset/CMakeCache.txt" "build/$preset/CMakeFiles"
  cmake --preset "$preset" --log-level=NOTICE >/dev/null
fi
arguments=()
for target in "$@"; do arguments+=(--target "$target"); done
exec cmake --build "build/$preset" "${arguments[@]}"
