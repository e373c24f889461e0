# shellcheck shell=bash
# One run of an emulated machine: QEMU with the single-threaded emulator (with the multi-threaded one
# kernels panic), four serial lines, and an exit status that says how the run ended.

# machine_run INITRD OUTPUT_DIRECTORY PROCESSORS EXACT: needs KERNEL_DIR, MEMORY, TIMEOUT.
# If EXACT is not empty, the emulated clock advances a nanosecond an instruction:
# what other programs do on the host then changes nothing that is measured inside, and
# idle time passes at once. It needs a single processor: with two, each waits for the other
# by counting, and the machine does not even boot.
#
# The command's stdout and stderr go to ours as they come. Status: the command's own,
# 124 for a machine that hung, 125 for one that died.
machine_run() {
    local initrd=$1 out=$2 status=0 reported emulator follower
    local options=()
    [ -z "${4:-}" ] || options=(-icount "shift=0,sleep=off")
    : >"$out/stderr"
    timeout --foreground --kill-after=5 "$TIMEOUT" \
        "$QEMU" -accel tcg,thread=single ${options[@]+"${options[@]}"} -cpu max -smp "$3" -m "$MEMORY" \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$KERNEL_DIR/vmlinuz" -initrd "$initrd" \
        -append "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic tsc=reliable clocksource=tsc nowatchdog cryptomgr.notests 8250.nr_uarts=4" \
        -serial "file:$out/console" \
        -chardev stdio,id=stdout,signal=off -serial chardev:stdout \
        -serial "file:$out/stderr" \
        -serial "file:$out/status" \
        </dev/null 2>"$out/emulator" &
    emulator=$!
    # Ends by itself once the emulator has, after a last look at the file.
    tail -f -n +1 -s 0.2 --pid="$emulator" "$out/stderr" >&2 &
    follower=$!
    wait "$emulator" || status=$?
    wait "$follower" || true

    reported=$(sed -nE 's/^exit ([0-9]{1,3}) started ([0-9.]+) ended ([0-9.]+)\r?$/\1 \2 \3/p' "$out/status" 2>/dev/null | tail -n1)
    if [ -n "$reported" ]; then
        # shellcheck disable=SC2034 # the caller reads them
        read -r status MACHINE_STARTED MACHINE_ENDED <<<"$reported"
        return "$status"
    fi
    if grep -aq 'Kernel panic' "$out/console" 2>/dev/null; then
        say "the emulated kernel panicked; the end of its console:"
    elif [ "$status" = 124 ] || [ "$status" = 137 ]; then
        say "the emulated machine did not finish within $TIMEOUT s (--timeout); the end of its console:"
        status=124
    else
        say "the emulated machine ended without a status (emulator's exit status $status); the end of its console:"
    fi
    [ "$status" = 124 ] || status=125
    tail -n 5 "$out/emulator" | sed 's/^/  emulator: /' >&2
    { tr -d '\r' <"$out/console" || true; } 2>/dev/null | grep -av '^$' | tail -n 40 | sed 's/^/  | /' >&2
    return "$status"
}
