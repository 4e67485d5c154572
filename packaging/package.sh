#!/usr/bin/env bash
# Builds the Debian packages into out/, and looks whether they are what they should be.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

tools/quietly.sh "building" ./dev build flyt_package_files
mkdir -p out
rm -f out/flyt-*.deb
tools/quietly.sh "packing" cpack --config build/release/CPackConfig.cmake -G DEB
for package in out/flyt-*.deb; do
  echo "$package: $(du -h "$package" | cut -f1)"
  # Nothing may belong to whoever built it, nor be writable by others.
  if dpkg-deb -c "$package" | grep -v ' root/root ' ||
    dpkg-deb -c "$package" | grep '^-.......w'; then
    echo "package: $package has files with wrong owners or modes" >&2
    exit 1
  fi
  # Nor may anything look for libraries elsewhere than the distribution has them.
  folder="$(mktemp -d)"
  dpkg-deb -x "$package" "$folder"
  strange="$(find "$folder" -type f -path '*/usr/*' -exec readelf -d {} + 2>/dev/null |
    grep -E 'RPATH|RUNPATH' || true)"
  rm -rf "$folder"
  if [[ -n "$strange" ]]; then
    echo "package: $package has programs with paths of their own: $strange" >&2
    exit 1
  fi
done
