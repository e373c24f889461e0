# shellcheck shell=bash disable=SC2034 # results are left in variables for the caller
# What the emulated machine takes from other suites: a kernel, and a C library if one is asked for.
# Both are resolved to the newest version that the suite has and kept unpacked in the cache.

# kernel_suite NAME: the Debian suite that a kernel's short name stands for.
kernel_suite() {
    case $1 in
    6.1) echo bookworm ;;
    6.12) echo trixie ;;
    backports) echo trixie-backports ;;
    sid) echo sid ;;
    *) return 1 ;;
    esac
}

# Modules that give the emulated machine a slow disk, in load order; those a kernel has built in are absent.
KERNEL_MODULES="configfs null_blk"

# kernel_fetch NAME: leaves the directory with vmlinuz, modules/ and release in KERNEL_DIR.
kernel_fetch() {
    local suite image part packages version into root
    suite=$(kernel_suite "$1")
    apt_open "$suite" || return 1
    image=$(apt_field linux-image-cloud-amd64 Depends | grep -oE 'linux-image-[0-9][^ ,]*' | tail -n1 || true)
    if [ -z "$image" ]; then
        SKIP_REASON="$suite has no linux-image-cloud-amd64"
        return 1
    fi
    version=$(apt_field "$image" Version)
    KERNEL_DIR=$CACHE/kernel/${image}_$version
    [ "$(cat "$KERNEL_DIR/modules/wanted" 2>/dev/null)" != "$KERNEL_MODULES" ] || return 0

    # Newer packaging splits the image: follow its parts, as far as they are the kernel's.
    packages=$image
    for part in $(apt_field "$image" Depends | grep -oE 'linux-(binary|modules)-[0-9][^ ,]*' || true); do
        packages="$packages $part"
    done
    say "fetching $packages ($version, $suite)"
    root=$(mktemp -d "$CACHE/tmp.XXXXXX")
    # shellcheck disable=SC2086 # a list of names
    apt_unpack "$root" $packages || { rm -rf "$root"; return 1; }

    into=$(mktemp -d "$CACHE/tmp.XXXXXX")
    mkdir -p "$into/modules" "$CACHE/kernel"
    local vmlinuz module name
    vmlinuz=$(find "$root" -type f -name 'vmlinuz*' | head -n1)
    if [ -z "$vmlinuz" ]; then
        SKIP_REASON="$packages ($version) holds no vmlinuz"
        rm -rf "$root" "$into"
        return 1
    fi
    cp "$vmlinuz" "$into/vmlinuz"
    for name in $KERNEL_MODULES; do
        module=$(find "$root" -type f -name "$name.ko*" | head -n1)
        case $module in
        *.ko) cp "$module" "$into/modules/$name.ko" ;;
        *.ko.xz) "$BUSYBOX" unxz -c <"$module" >"$into/modules/$name.ko" ;;
        *.ko.zst) zstd -dcq "$module" >"$into/modules/$name.ko" ;;
        esac
    done
    printf '%s %s\n' "$image" "$version" >"$into/release"
    echo "$KERNEL_MODULES" >"$into/modules/wanted"
    rm -rf "$root" "$KERNEL_DIR"
    mv "$into" "$KERNEL_DIR"
}

# libc_fetch SUITE: leaves the root that holds the suite's C library in LIBC_DIR.
libc_fetch() {
    local version into
    apt_open "$1" || return 1
    version=$(apt_field libc6 Version)
    if [ -z "$version" ]; then
        SKIP_REASON="$1 has no libc6"
        return 1
    fi
    LIBC_DIR=$CACHE/libc/libc6_$version
    [ ! -e "$LIBC_DIR" ] || return 0
    say "fetching libc6 ($version, $1)"
    mkdir -p "$CACHE/libc"
    into=$(mktemp -d "$CACHE/tmp.XXXXXX")
    apt_unpack "$into" libc6 || { rm -rf "$into"; return 1; }
    rm -rf "${into:?}/usr/share" "${into:?}/etc"
    mv "$into" "$LIBC_DIR"
}
