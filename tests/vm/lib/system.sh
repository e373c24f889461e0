# shellcheck shell=bash disable=SC2034 # results are left in variables for the caller
# A Debian with systemd for the emulated machine, of the suite that its kernel is from, or of the one below backports. It is
# unpacked and not installed: what a package does when it is installed (users, PAM's configuration) is written here, as far as
# something needs it.

# Beside systemd: what it looks for when it needs it (filters), a message bus, a login as another user, and tools that the checks call.
SYSTEM_PACKAGES="systemd libseccomp2 libpam-systemd dbus libc-bin kmod bash coreutils util-linux procps"

# system_suite KERNEL: the suite whose systemd the machine gets.
system_suite() {
    case $1 in
    backports) echo trixie ;;
    *) kernel_suite "$1" ;;
    esac
}

# system_fetch SUITE: leaves an archive of the whole system in SYSTEM_CPIO.
system_fetch() {
    local version packages root name
    apt_open "$1" || return 1
    version=$(apt_field systemd Version)
    if [ -z "$version" ]; then
        SKIP_REASON="$1 has no systemd"
        return 1
    fi
    SYSTEM_CPIO=$CACHE/system/systemd_${version}_$(cat "$HERE/lib/system.sh" | cksum | cut -d' ' -f1).cpio
    [ ! -e "$SYSTEM_CPIO" ] || return 0
    # What apt would install where nothing is.
    # shellcheck disable=SC2086 # a list of names
    packages=$(apt-get -q "${APT[@]}" -s --no-install-recommends install $SYSTEM_PACKAGES | awk '$1 == "Inst" { print $2 }')
    if [ -z "$packages" ]; then
        SKIP_REASON="apt finds no way to install $SYSTEM_PACKAGES in $1"
        return 1
    fi
    say "fetching a system with systemd ($version, $1)"
    root=$(mktemp -d "$CACHE/tmp.XXXXXX")
    mkdir -p "$CACHE/system"
    # shellcheck disable=SC2086 # a list of names
    apt_unpack "$root" $packages || { rm -rf "$root"; return 1; }
    # Debian 12's packages have files in /bin and the like, which are links into /usr where they are installed.
    for name in bin sbin lib lib64; do
        mkdir -p "$root/usr/$name"
        if [ -d "$root/$name" ] && [ ! -h "$root/$name" ]; then
            cp -a "$root/$name/." "$root/usr/$name/"
            rm -rf "${root:?}/$name"
        fi
        [ -h "$root/$name" ] || ln -s "usr/$name" "$root/$name"
    done
    rm -rf "$root"/usr/share/{doc,man,locale,perl,perl5,info,lintian,bash-completion} "$root"/usr/lib/x86_64-linux-gnu/{perl,perl5,gconv}
    system_configure "$root"
    archive "$root" "$SYSTEM_CPIO"
    rm -rf "$root"
}

# system_configure ROOT
system_configure() {
    local etc=$1/etc
    mkdir -p "$1"/{proc,sys,dev,tmp,run,root,home/user,var/tmp} "$etc/systemd/system" "$etc/pam.d"
    cat >"$etc/passwd" <<'END'
root:x:0:0:root:/root:/bin/sh
messagebus:x:100:100::/nonexistent:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
END
    printf '%s\n' root:x:0: messagebus:x:100: user:x:1000: nogroup:x:65534: >"$etc/group"
    echo 0123456789abcdef0123456789abcdef >"$etc/machine-id"
    for name in common-account common-session common-session-noninteractive common-auth common-password; do
        printf '%s required pam_permit.so\n' "$(echo "$name" | cut -d- -f2)" >"$etc/pam.d/$name"
    done
    ln -s /usr/lib/systemd/system/multi-user.target "$etc/systemd/system/default.target"
    # Consoles that nobody reads.
    ln -s /dev/null "$etc/systemd/system/getty.target"
    mkdir -p "$etc/systemd/system/multi-user.target.wants"
    cat >"$etc/systemd/system/command.service" <<'END'
[Unit]
Description=The command that the emulated machine was started for
After=multi-user.target

[Service]
Type=idle
ExecStart=/bin/sh /run-command
END
    ln -s ../command.service "$etc/systemd/system/multi-user.target.wants/command.service"
}
