# shellcheck shell=bash
# Debian packages of other suites, fetched through apt with its signature verification,
# into a private tree, without root and without touching the machine's own package state.
#
# The archive is the one that this machine already uses: it is read from apt's sources,
# in either format, and never named here.
# Rejected: plain downloads with a checksum file of our own, which would have to name
# versions (they move) and hosts (they differ), and would verify nothing that moves.

# Every enabled binary source of this machine, one "URI SUITE COMPONENT KEYRING" a line;
# KEYRING is "-" where the source names none or carries its key inline.
apt_sources() {
    local parts=${APT_SOURCES_DIR:-/etc/apt}
    local file
    for file in "$parts"/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        awk '
            function flush(   types, uris, suites, comps, i, j, k, key) {
                if (tolower(f["enabled"]) !~ /^(no|false|0|off)$/ &&
                    (" " f["types"] " ") ~ / deb /) {
                    key = (f["signed-by"] ~ /^\/[^ ]+$/) ? f["signed-by"] : "-"
                    i = split(f["uris"], uris, " ")
                    j = split(f["suites"], suites, " ")
                    k = split(f["components"], comps, " ")
                    for (a = 1; a <= i; a++) for (b = 1; b <= j; b++) for (c = 1; c <= k; c++)
                        print uris[a], suites[b], comps[c], key
                }
                delete f; name = ""
            }
            /^#/ { next }
            /^[ \t]*$/ { flush(); next }
            /^[ \t]/ { sub(/^[ \t]+/, ""); f[name] = f[name] " " $0; next }
            {
                name = tolower(substr($0, 1, index($0, ":") - 1))
                value = substr($0, index($0, ":") + 1)
                gsub(/^[ \t]+|[ \t]+$/, "", value)
                f[name] = value
            }
            END { flush() }
        ' "$file"
    done
    for file in "$parts"/sources.list "$parts"/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        awk '
            { sub(/#.*/, "") }
            $1 == "deb" {
                key = "-"; line = $0
                if (match(line, /\[[^]]*\]/)) {
                    opts = substr(line, RSTART + 1, RLENGTH - 2)
                    line = substr(line, 1, RSTART - 1) " " substr(line, RSTART + RLENGTH)
                    if (match(opts, /signed-by=[^ ]+/))
                        key = substr(opts, RSTART + 10, RLENGTH - 10)
                    sub(/,.*/, "", key)
                }
                n = split(line, w, " ")
                for (i = 4; i <= n; i++) print w[2], w[3], w[i], key
            }
        ' "$file"
    done
}

# The first source of Debian's own archive whose suite matches the pattern: "URI KEYRING".
# Third parties use Debian's suite names too; a key that is not the archive's gives them away.
apt_find_source() {
    apt_sources | awk -v suite="$1" '
        $3 == "main" && $2 ~ suite && ($4 == "-" || $4 ~ /debian-archive/) { print $1, $4; exit }'
}

apt_archive() {
    apt_find_source '^(bullseye|bookworm|trixie|forky|duke|sid|oldoldstable|oldstable|stable|testing|unstable)(-updates|-backports)?/?$'
}

apt_security() {
    apt_find_source '^(bullseye|bookworm|trixie|forky|duke|oldstable|stable|testing)-security/?$'
}

# apt_open SUITE: prepares the private tree of a suite and leaves apt's options in APT.
# Fails with the reason in SKIP_REASON.
apt_open() {
    local suite=$1 uri key security
    local tree=$CACHE/apt/$suite
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        SKIP_REASON="no apt-get or dpkg-deb here, and kernels come as Debian packages"
        return 1
    fi
    read -r uri key < <(apt_archive) || true
    if [ -z "${uri:-}" ]; then
        SKIP_REASON="no Debian archive among this machine's apt sources"
        return 1
    fi
    [ "$key" != - ] || key=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ ! -r "$key" ]; then
        SKIP_REASON="no archive key at $key (package debian-archive-keyring)"
        return 1
    fi
    mkdir -p "$tree/lists/partial" "$tree/cache/archives/partial" "$tree/parts"
    {
        echo "deb [arch=amd64 target=Packages signed-by=$key] $uri $suite main"
        case $suite in
        bookworm | trixie)
            read -r security _ < <(apt_security) || true
            [ -z "${security:-}" ] ||
                echo "deb [arch=amd64 target=Packages signed-by=$key] $security $suite-security main"
            ;;
        esac
    } >"$tree/sources.list.new"
    # A changed source makes the lists stale.
    cmp -s "$tree/sources.list.new" "$tree/sources.list" || rm -f "$tree/updated"
    mv "$tree/sources.list.new" "$tree/sources.list"
    APT=(
        -o "Dir::Etc::sourcelist=$tree/sources.list" -o "Dir::Etc::sourceparts=$tree/parts"
        -o "Dir::Etc::preferences=/dev/null" -o "Dir::Etc::preferencesparts=$tree/parts"
        -o "Dir::State::Lists=$tree/lists" -o "Dir::State::status=/dev/null"
        -o "Dir::Cache=$tree/cache"
        -o "APT::Architecture=amd64" -o "APT::Architectures::=amd64"
        -o "APT::Sandbox::User=" -o "APT::Update::Error-Mode=any"
        -o "Acquire::Languages=none" -o "Acquire::Retries=2"
    )
    if [ -e "$tree/updated" ] && [ -z "$REFRESH" ] &&
        [ -n "$(find "$tree/updated" -mmin -1440)" ]; then
        return 0
    fi
    say "reading the package list of $suite"
    if ! timeout 300 apt-get -q "${APT[@]}" update >"$tree/update.log" 2>&1; then
        SKIP_REASON="apt could not read the package list of $suite: $(grep -m1 '^[EW]:' "$tree/update.log" || tail -n1 "$tree/update.log")"
        [ -e "$tree/updated" ] || return 1
        say "$SKIP_REASON; going on with the list of $(date -r "$tree/updated" +%F)"
        return 0
    fi
    touch "$tree/updated"
}

# apt_field PACKAGE FIELD: a field of the newest version of a package in the open suite.
apt_field() {
    apt-cache "${APT[@]}" --no-all-versions show "$1" 2>/dev/null | sed -n "s/^$2: //p" | head -n1
}

# apt_unpack DIRECTORY PACKAGE...: downloads, verified, and unpacks.
apt_unpack() {
    local into=$1 scratch
    shift
    scratch=$(mktemp -d "$CACHE/tmp.XXXXXX")
    if ! (cd "$scratch" && timeout 600 apt-get -q "${APT[@]}" download "$@") >"$scratch/log" 2>&1; then
        SKIP_REASON="apt could not download $*: $(grep -m1 '^[EW]:' "$scratch/log" || tail -n1 "$scratch/log")"
        rm -rf "$scratch"
        return 1
    fi
    local deb
    for deb in "$scratch"/*.deb; do
        dpkg-deb -x "$deb" "$into"
    done
    rm -rf "$scratch"
}
