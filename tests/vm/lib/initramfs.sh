# shellcheck shell=bash
# The emulated machine's memory file system, built as several cpio archives that the kernel unpacks
# one over the other: a base that is the same for every run, the kernel's modules, the
# binaries under test with their libraries, and last a foreign C library, or a system with systemd, if one is wanted.
# All but the binaries come from the cache. Nothing is compressed: an emulated processor
# inflates slowly, and the emulator hands over plain memory at no cost.
#
# The emulated machine's /bin, /sbin, /lib and /lib64 are links into /usr, as in Debian 12 and later.

# archive DIRECTORY FILE
archive() {
    (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | "$BUSYBOX" cpio -o -H newc 2>/dev/null) >"$2.$$"
    mv "$2.$$" "$2"
}

# base_archive: leaves the path in BASE_CPIO.
base_archive() {
    local key root name
    key=$(cat "$BUSYBOX" "$HERE/machine/init" "$HERE/machine/run-command" "$HERE/lib/initramfs.sh" | sha256sum | cut -c1-16)
    BASE_CPIO=$CACHE/base-$key.cpio
    [ ! -e "$BASE_CPIO" ] || return 0
    root=$(mktemp -d "$CACHE/tmp.XXXXXX")
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{proc,sys,dev,tmp,etc,root,run,home/user}
    for name in bin sbin lib lib64; do
        ln -s "usr/$name" "$root/$name"
    done
    cp "$BUSYBOX" "$root/usr/bin/busybox"
    "$BUSYBOX" --list | while read -r name; do
        [ "$name" = busybox ] || ln -s busybox "$root/usr/bin/$name"
    done
    install -m 755 "$HERE/machine/init" "$root/init"
    install -m 755 "$HERE/machine/run-command" "$root/run-command"
    printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"
    archive "$root" "$BASE_CPIO"
    rm -rf "$root"
}

# modules_archive: for KERNEL_DIR; leaves the path in MODULES_CPIO.
modules_archive() {
    local root name
    MODULES_CPIO=$KERNEL_DIR/modules-$(echo "$KERNEL_MODULES" | cksum | cut -d' ' -f1).cpio
    [ ! -e "$MODULES_CPIO" ] || return 0
    root=$(mktemp -d "$CACHE/tmp.XXXXXX")
    mkdir -p "$root/modules"
    for name in $KERNEL_MODULES; do
        [ ! -e "$KERNEL_DIR/modules/$name.ko" ] || {
            cp "$KERNEL_DIR/modules/$name.ko" "$root/modules/"
            echo "$name" >>"$root/modules/order"
        }
    done
    archive "$root" "$MODULES_CPIO"
    rm -rf "$root"
}

# libc_archive: for LIBC_DIR; leaves the path in LIBC_CPIO.
libc_archive() {
    local root
    LIBC_CPIO=$LIBC_DIR.cpio
    [ ! -e "$LIBC_CPIO" ] || return 0
    root=$(mktemp -d "$CACHE/tmp.XXXXXX")
    mkdir -p "$root/usr/lib/x86_64-linux-gnu" "$root/usr/lib64"
    find "$LIBC_DIR" -path '*/x86_64-linux-gnu/*.so*' -not -path '*/gconv/*' \
        -exec cp -L {} "$root/usr/lib/x86_64-linux-gnu/" \;
    ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$root/usr/lib64/ld-linux-x86-64.so.2"
    archive "$root" "$LIBC_CPIO"
    rm -rf "$root"
}

# machine_path PATH: where a host path lies in the emulated machine's merged /usr.
machine_path() {
    case $1 in
    /bin/* | /sbin/* | /lib/* | /lib64/*) echo "/usr$1" ;;
    *) echo "$1" ;;
    esac
}

# pack_file ROOT SOURCE TARGET
pack_file() {
    local to
    to=$1$(machine_path "$3")
    mkdir -p "${to%/*}"
    cp -L "$2" "$to"
}

# pack_binary ROOT SOURCE TARGET: with every library that the loader would map for it.
pack_binary() {
    local root=$1 source=$2 target=$3 to library
    pack_file "$root" "$source" "$target"
    to=$root$(machine_path "$target")
    # Debugging information is most of a binary, and nothing in the emulated machine reads it.
    strip --strip-debug "$to" 2>/dev/null || true
    # Static binaries make ldd fail, and need nothing.
    { ldd "$source" 2>/dev/null || true; } | { grep -oE '(=> )?/[^ ]+ \(0x' || true; } | sed -E 's/^=> //; s/ \(0x$//' |
        while read -r library; do
            [ -e "$root$(machine_path "$library")" ] || pack_file "$root" "$library" "$library"
        done
}

# pack_python ROOT SCRIPT TARGET: with what it imported when it ran here just now, the modules
# beside it included, and the interpreter as /usr/bin/python3. Fails without a working one.
pack_python() {
    local root=$1 script=$2 target=$3 python file folder
    # What PATH has may be a script that chooses one.
    python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>/dev/null) || return 1
    pack_file "$root" "$script" "$target"
    folder=$(cd "${script%/*}" && pwd)
    "$python" -S -c '
import os, runpy, sys
sys.path[0], sys.argv = os.path.dirname(sys.argv[1]), sys.argv[1:]
out, sys.stdout = sys.stdout, open(os.devnull, "w")
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
print(os.path.realpath(os.__file__), file=out)
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print(os.path.abspath(module.__file__), file=out)
' "$folder/${script##*/}" >"$WORK/imported" </dev/null 2>/dev/null || return 1
    pack_binary "$root" "$python" "$python"
    mkdir -p "$root/usr/bin"
    [ "$python" = /usr/bin/python3 ] || ln -sf "$python" "$root/usr/bin/python3"
    while read -r file; do
        case $file in
        "$folder"/*) pack_file "$root" "$file" "${target%/*}/${file#"$folder"/}" ;;
        *.so) pack_binary "$root" "$file" "$file" ;;
        *) pack_file "$root" "$file" "$file" ;;
        esac
    done <"$WORK/imported"
}

# pack_manifest ROOT MANIFEST. Lines: KIND SOURCE [TARGET], where KIND is bin (with its
# libraries), file, dir or python (a script with its modules and the interpreter); a "?"
# after it lets the source, or python, be absent. A relative source is
# relative to the repository; @release@ is cargo's release directory; a name without a
# slash is searched in PATH; the target defaults to /usr/bin/NAME.
pack_manifest() {
    local root=$1 manifest=$2 kind source target optional
    while read -r kind source target; do
        case $kind in '' | '#'*) continue ;; esac
        optional=
        case $kind in *'?') optional=1 kind=${kind%?} ;; esac
        case $source in
        @release@/*) source=$RELEASE/${source#@release@/} ;;
        /*) ;;
        */*) source=$REPO/$source ;;
        *) source=$(command -v "$source" || echo "/nowhere/$source") ;;
        esac
        target=${target:-/usr/bin/${source##*/}}
        if [ ! -e "$source" ]; then
            [ -n "$optional" ] && continue
            die "$manifest wants $source, which does not exist (leave out --no-build, or build it)"
        fi
        case $kind in
        bin) pack_binary "$root" "$source" "$target" ;;
        file) pack_file "$root" "$source" "$target" ;;
        python)
            if ! pack_python "$root" "$source" "$target"; then
                [ -n "$optional" ] || die "$manifest wants $source, and no python3 here runs it"
            fi
            ;;
        dir) mkdir -p "$root$(machine_path "$target")" && cp -rL "$source/." "$root$(machine_path "$target")/" ;;
        *) die "$manifest: unknown kind '$kind' (bin, file, dir or python)" ;;
        esac
    done <"$manifest"
}
