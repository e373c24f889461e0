# What a case may use. It runs in a scratch directory, with the launcher in $RUN (empty: natively). It passes if it
# exits with 0. What it writes to the file `answer` must be the same natively and launched.
set -eu
HERE=${HERE:?} SCRATCH=${SCRATCH:?} RUN=${RUN?}
servers=()

# need PROGRAM PACKAGE: skips the case if a program is missing.
need() {
    command -v "$1" >/dev/null 2>&1 || [ -x "$1" ] || { echo "skipped: no $1 (Debian package $2)"; exit 77; }
}

# becomes USER: sets $become to words before a command that make it run as another user, if we are root.
becomes() {
    become=
    [ "$(id -u)" != 0 ] || become="setpriv --reuid=$1 --regid=$(id -g "$1") --init-groups"
}

# port: prints a port of the loopback interface that nobody listens on.
port() {
    /usr/bin/python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# server COMMAND...: starts a server in the foreground of its own process. Its id is in $server.
server() {
    "$@" >>"$SCRATCH/server.log" 2>&1 &
    server=$!
    servers+=("$server")
}

# listens PORT: returns when a server accepts connections at PORT. Fails if the last server has ended.
listens() {
    until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { echo "the server ended:"; tail -20 "$SCRATCH/server.log"; return 1; }
        sleep 0.1
    done
}

# stops [SIGNAL] [STATUS]: ends the last server by a signal, and its exit status must be STATUS.
stops() {
    local status=0
    kill -"${1:-TERM}" "$server"
    wait "$server" || status=$?
    servers=("${servers[@]/$server/}")
    [ "$status" = "${2:-0}" ] || { echo "the server ended with status $status"; tail -20 "$SCRATCH/server.log"; return 1; }
}

# certificate: makes key.pem and cert.pem for localhost.
certificate() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
        -keyout key.pem -out cert.pem 2>/dev/null
}

ended() {
    local status=$? id
    trap - EXIT
    if [ $status != 0 ] && [ $status != 77 ] && [ -s "$SCRATCH/server.log" ]; then
        echo "--- server.log"; tail -20 "$SCRATCH/server.log"
    fi
    for id in "${servers[@]}"; do [ -z "$id" ] || kill -TERM "$id" 2>/dev/null || true; done
    for id in "${servers[@]}"; do [ -z "$id" ] || timeout 5 tail --pid="$id" -f /dev/null || kill -KILL "$id" 2>/dev/null || true; done
    exit $status
}
trap ended EXIT
trap 'exit 124' TERM
source "$HERE/cases/$1"
