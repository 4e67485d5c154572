#!/usr/bin/env bash
# Installs what building and testing need, from the distribution's own packages only.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

PACKAGES=(
  g++ cmake ninja-build python3 git        # the build
  ccache lld                               # faster builds
  liblz4-dev libzstd-dev                   # compressed fat binaries, and code on its way
  libcli11-dev                             # command lines of the programs
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler  # the control plane's API
  libsqlite3-dev libtomlplusplus-dev nlohmann-json3-dev libssl-dev  # its state, files, pages
  libmongoc-dev                            # VMs' requirements from MongoDB
  libgtest-dev libgmock-dev                # the tests
  etcd-server iproute2                     # what some of them need beside
  binutils clang-format-14                 # lint
)
TIDY=(clang-tidy-14)
FUZZ=(clang libclang-rt-dev llvm)  # llvm: the symbolizer

for option in "$@"; do
  case "$option" in
    --tidy) PACKAGES+=("${TIDY[@]}") ;;
    --fuzz) PACKAGES+=("${FUZZ[@]}") ;;
    *) echo "setup: no option '$option'" >&2; exit 2 ;;
  esac
done

stamp="build/.setup-$(echo "${PACKAGES[*]}" | cksum | cut -d' ' -f1)"
[[ -e "$stamp" ]] && exit 0
done_with() { mkdir -p build && touch "$stamp"; }

# Says which of the packages are not installed; empty when everything is there.
missing() {
  local package
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
      echo "$package"
  done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  for program in g++ cmake ninja python3; do
    command -v "$program" >/dev/null || {
      echo "setup: this is not a Debian or Ubuntu system; please install: ${PACKAGES[*]}" >&2
      exit 1
    }
  done
  done_with
  exit 0
fi

mapfile -t wanted < <(missing)
if ((${#wanted[@]} == 0)); then
  done_with
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || {
    echo "setup: not root and no sudo; please install: ${wanted[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "setup: installing ${wanted[*]}"
started=$SECONDS
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -qq "$@"; }
# Tests start an etcd of their own: no service of the machine's comes with the package.
if [[ " ${wanted[*]} " == *" etcd-server "* && -d /run/systemd/system ]]; then
  "${as_root[@]}" systemctl -q mask etcd.service
  trap '"${as_root[@]}" systemctl -q unmask etcd.service' EXIT
fi
# A machine's package lists may be missing or old: try as it is, then once more after an update.
apt install -y --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 || {
  apt update
  apt install -y --no-install-recommends "${wanted[@]}" >/dev/null
}
done_with
echo "setup: done in $((SECONDS - started)) s"
