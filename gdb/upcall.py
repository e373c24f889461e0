"""gdb commands for programs under Upcall, live or in a core file:

  info upcall threads       all threads of the program, as `info threads` lists kernel threads
  upcall thread N           look at thread N: its frames are behind the current one (bt, up, frame, info locals)
  upcall thread             which thread is looked at
  upcall thread off         look at the kernel thread again
  upcall backtrace [N...]   the frames of these threads, or of all

The script reads memory. It writes no register and calls no function of the program, so that all of it works in a core
file. The kernel thread that is selected lends its innermost frame: to gdb's unwinder, the caller of that frame is the
thread that is looked at.

How the script finds what it reads: the head of crates/upcall-abi/src/description.rs. A test of upcall-cli compares the
numbers and names here with those there.
"""

import re
import struct

import gdb
import gdb.unwinder

MAGIC = 0x6E65646470750001
VERSION = 2
NOTE_NAME = b"Upcall\0"
NOTE_TYPE = 1

OFFSETS = """
thread_context thread_state thread_wait thread_carrier thread_has_deadline thread_deadline thread_id thread_name
thread_frame thread_pointer thread_shell thread_bound thread_waits thread_descriptor thread_wants thread_sibling
shell_task task_shell task_ending task_over bound_tid bound_state bound_away activation_vp activation_activity activation_marks
activation_tid vp_word vp_index vp_processor runtime_vps runtime_nr_vps vp_size saved_ip saved_sp saved_bp saved_bx
frame_call frame_argument frame_ip frame_sp frame_bp frame_bx frame_r12 frame_r13 frame_r14 frame_r15
""".split()

STANDING_RUNNING, STANDING_PARKING, STANDING_PARKED, STANDING_READY, STANDING_HELD, STANDING_WOKEN = range(1, 7)
ACTIVITY_RUNNING, ACTIVITY_IN_CALL, ACTIVITY_DISPLACED, ACTIVITY_UNSETTLED, ACTIVITY_ALONE = range(1, 6)
STATE_RUNNING, STATE_IN_CALL, STATE_IDLE = range(1, 4)
WAIT_WORD, WAIT_SLEEP, WAIT_END = range(1, 4)

# System calls that may block: with a star, those whose first argument is a descriptor.
CALLS = dict(
    (int(number), name)
    for number, name in (
        word.split(":")
        for word in """
0:read* 1:write* 7:poll 16:ioctl* 17:pread64* 18:pwrite64* 19:readv* 20:writev* 23:select 34:pause 35:nanosleep
42:connect* 43:accept* 44:sendto* 45:recvfrom* 46:sendmsg* 47:recvmsg* 61:wait4 65:semop 69:msgsnd 70:msgrcv
72:fcntl* 73:flock* 74:fsync* 75:fdatasync* 128:rt_sigtimedwait 130:rt_sigsuspend 202:futex 220:semtimedop
230:clock_nanosleep 232:epoll_wait* 247:waitid 257:openat 270:pselect6 271:ppoll 275:splice* 281:epoll_pwait*
288:accept4* 295:preadv* 296:pwritev* 299:recvmmsg* 307:sendmmsg* 318:getrandom 326:copy_file_range*
426:io_uring_enter* 441:epoll_pwait2* 449:futex_waitv
""".split()
    )
)

# Functions of the runtime, in a program that links the crate.
OWN = re.compile(r"[<&]*((upcall_core|upcall_linux|upcall_guest|upcall)::|upcall_(enter|after|load|signal_|program_call|raw_syscall))")
OWN_SOURCE = re.compile(r"(^|/)upcall(-core|-linux|-guest)?(-[0-9][^/]*)?/src/")
# Functions of Rust's library.
LIBRARY = re.compile(r"[<&]*(core|std|alloc)::")
# libc: a frame there says less than the program's own.
LIBC = re.compile(r"/(libc|libpthread|ld-linux-x86-64)[-.0-9]*\.so")


def read(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def number(form, address):
    return struct.unpack(form, read(address, struct.calcsize(form)))[0]


def u64(address):
    return number("<Q", address)


def u32(address):
    return number("<I", address)


def objects():
    """Where the loaded objects begin."""
    try:
        text = gdb.execute("info proc mappings", to_string=True)
    except gdb.error as error:
        raise gdb.GdbError("upcall: there is neither a process nor a core file with its mappings: %s" % error)
    line = re.compile(r"^\s*(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+0x[0-9a-f]+\s+0x0\s+(?:[-rwxsp]{4,5}\s+)?/", re.MULTILINE)
    return sorted(set(int(found, 16) for found in line.findall(text)))


def notes(start):
    """The addresses of what the notes of an object contain that lead to a description."""
    header = read(start, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        return
    phoff, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
    segments = []
    for at in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", read(start + phoff + at * size, size))
        segments.append((kind, offset, address, length))
    bases = [start - address for kind, offset, address, _ in segments if kind == 1 and offset == 0]
    for kind, _, address, length in segments:
        if kind != 4 or not bases:
            continue
        data, at = read(bases[0] + address, length), 0
        while at + 12 <= len(data):
            name_size, size_of_contents, kind_of_note = struct.unpack_from("<III", data, at)
            contents = at + 12 + (name_size + 3 & ~3)
            if kind_of_note == NOTE_TYPE and data[at + 12 : at + 12 + name_size] == NOTE_NAME:
                yield bases[0] + address + contents
            at = contents + (size_of_contents + 3 & ~3)


class Description:
    """What the library says of itself."""

    def __init__(self, address):
        magic, version, size = struct.unpack("<QII", read(address, 16))
        if magic != MAGIC or version != VERSION:
            raise gdb.GdbError("upcall: this script reads version %d, the program has version %d" % (VERSION, version))
        data = read(address, size)
        self.runtime, self.first, self.table, self.used, self.beginning, self.most = struct.unpack_from("<6Q", data, 16)
        numbers = struct.unpack_from("<%dI" % len(OFFSETS), data, 64)
        self.at = dict(zip(OFFSETS, numbers))
        rest = 64 + 4 * len(OFFSETS)
        self.standings, self.activities = data[rest : rest + 16], data[rest + 16 : rest + 32]
        self.states, self.waits = data[rest + 32 : rest + 40], data[rest + 40 : rest + 44]

    def field(self, form, address, name):
        return number(form, address + self.at[name])


def description():
    """The description of the library that serves the program."""
    found = False
    for start in objects():
        try:
            for note in notes(start):
                found = True
                it = Description(note + struct.unpack("<q", read(note, 8))[0])
                if u64(it.runtime) != 0:
                    return it
        except gdb.MemoryError:
            continue
    raise gdb.GdbError(
        "upcall: the program has made no thread yet: its one thread is the kernel's"
        if found
        else "upcall: the program is not under Upcall, or the core file lacks the pages with ELF headers (core(5))"
    )


class Thread:
    """A thread as it is now."""

    def __init__(self, it, place, address):
        field = lambda form, name: it.field(form, address, name)
        self.number, self.address = place, address
        self.id = field("<i", "thread_id")
        self.name = read(address + it.at["thread_name"], 16).split(b"\0")[0].decode("utf-8", "replace")
        self.standing = it.standings[field("<I", "thread_state") & 15]
        self.wait = field("<Q", "thread_wait")
        self.has_deadline = field("<I", "thread_has_deadline") != 0
        self.frame = field("<Q", "thread_frame")
        self.descriptor = field("<I", "thread_descriptor") if field("<B", "thread_waits") else None
        self.wants, self.sibling = field("<I", "thread_wants"), field("<Q", "thread_sibling")
        self.wait_kind = it.waits[self.wait & 3] if self.wait else None
        shell, bound = field("<Q", "thread_shell"), field("<Q", "thread_bound")
        task = it.field("<Q", shell, "shell_task") if shell != 0 else 0
        runs = task != 0 and it.field("<Q", task, "task_shell") == shell and it.field("<Q", task, "task_ending") != it.at["task_over"]
        self.is_free = shell != 0 and not runs
        self.tid, self.vp, self.context = None, None, None
        carrier = field("<Q", "thread_carrier")
        if carrier != 0:
            try:
                self.carried(it, carrier)
            except gdb.MemoryError:
                self.carried_by_unknown(field("<Q", "thread_pointer"))
        elif bound != 0 and it.field("<I", bound, "bound_state") == it.at["bound_away"]:
            self.state, self.tid = "bound", it.field("<i", bound, "bound_tid")
        else:
            self.saved(it, field("<Q", "thread_context"))

    def carried_by_unknown(self, thread_pointer):
        """The memory of its activation is not in the core file: a debugger that wrote it gave up before that."""
        self.state = "running"
        with Place():
            for kernel in gdb.selected_inferior().threads():
                try:
                    kernel.switch()
                    if int(gdb.newest_frame().read_register("fs_base")) == thread_pointer:
                        self.tid = kernel.ptid[1]
                except gdb.error:
                    # In a core file libthread_db adds threads of libc's that have no registers there.
                    continue

    def carried(self, it, carrier):
        self.tid = it.field("<i", carrier, "activation_tid")
        activity = it.activities[it.field("<I", carrier, "activation_activity") & 15]
        marks = it.field("<I", carrier, "activation_marks")
        vp = it.field("<Q", carrier, "activation_vp")
        if vp == 0:
            raise gdb.MemoryError("no activation")
        word = it.field("<Q", vp, "vp_word")
        owns = word & ~7 == carrier
        if activity == ACTIVITY_IN_CALL and (not owns or it.states[word & 7] == STATE_IN_CALL):
            self.state = "blocked"
        elif activity == ACTIVITY_DISPLACED:
            self.state = "preempted"
        elif activity == ACTIVITY_UNSETTLED or marks != 0:
            self.state = "blocked"
            self.frame = 0
        else:
            self.state = "running"
            if owns:
                self.vp = it.field("<I", vp, "vp_index")

    def saved(self, it, context):
        self.state = {STANDING_READY: "ready", STANDING_WOKEN: "ready", STANDING_HELD: "held"}.get(
            self.standing, "parked" if self.standing in (STANDING_PARKED, STANDING_PARKING) else "ready"
        )
        if context == 0:
            return
        self.context = dict(
            (name, it.field("<Q", context, "saved_" + name[1:])) for name in ("rip", "rsp", "rbp", "rbx")
        )
        self.is_new = self.context["rip"] == it.beginning
        if self.is_new:
            self.context["rsp"] = context

    def waits_for(self):
        if self.state == "bound":
            return "runs on its own kernel thread"
        if self.state not in ("parked", "blocked"):
            return "has not begun" if self.context and self.is_new else ""
        limit = ", or its deadline" if self.has_deadline else ""
        if self.state == "parked":
            if self.wait_kind == WAIT_SLEEP:
                return "its deadline"
            if self.wait_kind == WAIT_END:
                return "the end of a thread" + limit
            if self.wait_kind == WAIT_WORD:
                return "the word at %#x%s" % (self.wait & ~3, limit)
            if self.descriptor is not None:
                aims = [aim for bit, aim in ((1, "read"), (2, "write")) if self.wants & bit]
                more = " and others" if self.sibling else ""
                return "descriptor %d%s to %s%s" % (self.descriptor, more, " or ".join(aims) or "fail", limit)
        call = self.call()
        return call + limit if call else ("a page, or a debugger" if self.state == "blocked" else limit[5:])

    def call(self):
        """The system call in which it is."""
        if self.frame == 0:
            return None
        try:
            at = description_now().at
            call, argument = u64(self.frame + at["frame_call"]), u64(self.frame + at["frame_argument"])
        except gdb.MemoryError:
            return None
        name = CALLS.get(call, "system call %d" % call)
        return "%s of descriptor %d" % (name[:-1], argument & 0xFFFFFFFF) if name.endswith("*") else name


# The description that the current command has found.
NOW = None


def description_now():
    return NOW


def threads():
    """All threads of the program, by their numbers: the first is 1, the others have their places in the table."""
    global NOW
    it = NOW = description()
    places, first, table = [], u64(it.first), u64(it.table)
    if first != 0:
        places.append((1, first))
    if table != 0:
        used = min(u64(it.used), it.most)
        for begin in range(0, used, 1 << 16):
            count = min(used - begin, 1 << 16)
            words = struct.unpack("<%dQ" % count, read(table + 8 * begin, 8 * count))
            places += [(begin + at + 2, word) for at, word in enumerate(words) if word != 0]
    found = (Thread(it, place, address) for place, address in places)
    return [thread for thread in found if not thread.is_free]


class Looked:
    """The thread that is looked at, and the innermost frame of the kernel thread that lends it."""

    def __init__(self, thread):
        self.thread = thread
        self.ptid = gdb.selected_thread().ptid
        newest = gdb.newest_frame()
        self.pc, self.sp = int(newest.read_register("rip")), int(newest.read_register("rsp"))

    def first_frame(self):
        """The thread's own innermost frame."""
        frame = gdb.newest_frame()
        saved = self.thread.context
        while frame is not None:
            if frame.pc() == saved["rip"] and int(frame.read_register("rsp")) == saved["rsp"]:
                return frame
            frame = frame.older()
        raise gdb.GdbError("upcall: gdb finds no frame of this thread")


LOOKED = None


def look(looked):
    global LOOKED
    LOOKED = looked
    gdb.invalidate_cached_frames()


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class Unwinder(gdb.unwinder.Unwinder):
    """To whom the innermost frame of the selected kernel thread returns, while a thread is looked at."""

    def __init__(self):
        super(Unwinder, self).__init__("upcall")

    def __call__(self, pending):
        looked = LOOKED
        if looked is None:
            return None
        selected = gdb.selected_thread()
        if selected is None or selected.ptid != looked.ptid:
            return None
        pc, sp = pending.read_register("rip"), pending.read_register("rsp")
        if int(pc) != looked.pc or int(sp) != looked.sp:
            return None
        saved = looked.thread.context
        # An id that is below that of the thread's first frame, as the callee's is.
        info = pending.create_unwind_info(FrameId(gdb.Value(saved["rsp"] - 16), pc))
        for name, value in saved.items():
            info.add_saved_register(name, gdb.Value(value).cast(pending.read_register(name).type))
        return info


def kernel_thread(tid):
    for thread in gdb.selected_inferior().threads():
        if thread.ptid[1] == tid:
            return thread
    raise gdb.GdbError("upcall: gdb has no kernel thread %d" % tid)


def go_to(thread):
    """Makes the thread's innermost frame the selected one."""
    if thread.tid is not None:
        look(None)
        kernel_thread(thread.tid).switch()
        gdb.newest_frame().select()
    elif thread.context is None:
        raise gdb.GdbError("upcall: thread %d is not saved yet" % thread.number)
    else:
        look(None)
        look(Looked(thread))
        LOOKED.first_frame().select()


def back_to(kernel, looked, frame):
    if kernel is not None and kernel.is_valid():
        kernel.switch()
    look(looked)
    if looked is not None:
        looked.first_frame().select()
    elif frame is not None and frame.is_valid():
        frame.select()


class Place:
    """Where gdb is, to go back there."""

    def __enter__(self):
        self.kernel, self.looked = gdb.selected_thread(), LOOKED
        if self.kernel is None:
            raise gdb.GdbError("upcall: there is no process and no core file")

    def __exit__(self, *_):
        back_to(self.kernel, self.looked, None)


def whose(frame):
    """To what a function belongs: "own", the runtime; "library", Rust's, which the runtime and programs use; or else
    "programs". crates/upcall-cli/src/stacks/mod.rs has the same rule."""
    # Tables of lines alone do not say in which crate a function is.
    symtab = frame.find_sal().symtab
    source, name = symtab.filename if symtab is not None else "", frame.name() or ""
    object_ = gdb.solib_name(frame.pc()) or ""
    if object_.endswith("/libupcall_guest.so") or frame.type() == gdb.SIGTRAMP_FRAME:
        return "own"
    if OWN.match(name) or OWN_SOURCE.search(source):
        return "own"
    return "library" if LIBRARY.match(name) or source.startswith("/rustc/") else "programs"


def programs_frame():
    """The innermost frame from the selected one on that is not the runtime's; the selected one if there is none."""
    selected = frame = gdb.selected_frame()
    behind = selected
    while frame is not None:
        kind, frame = whose(frame), frame.older()
        if kind == "programs":
            return behind
        if kind == "own":
            behind = frame
    return selected


def function(thread):
    """The innermost function that is not the runtime's, and behind it the innermost that is not a language's library's."""
    go_to(thread)
    frame = programs_frame()
    shown = lambda frame: frame.name() or "%#x" % frame.pc()
    names = [shown(frame)]
    while frame is not None and (LIBC.search(gdb.solib_name(frame.pc()) or "") or whose(frame) != "programs"):
        frame = frame.older()
    if frame is not None and shown(frame) != names[0]:
        names.append(shown(frame))
    return " < ".join(names)


def title(thread):
    where = " on %d" % thread.vp if thread.vp is not None else ""
    waits = thread.waits_for()
    return "%d (id %d, \"%s\") %s%s%s" % (
        thread.number,
        thread.id,
        thread.name,
        thread.state,
        where,
        ": " + waits if waits else "",
    )


class UpcallPrefix(gdb.Command):
    """Threads of a program under Upcall: upcall thread, upcall backtrace, info upcall threads."""

    def __init__(self):
        super(UpcallPrefix, self).__init__("upcall", gdb.COMMAND_STACK, gdb.COMPLETE_NONE, True)


class InfoPrefix(gdb.Command):
    """What is known of a program under Upcall: info upcall threads."""

    def __init__(self):
        super(InfoPrefix, self).__init__("info upcall", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)


class InfoThreads(gdb.Command):
    """List all threads of a program under Upcall.

    The columns: the thread's number for `upcall thread`, its id and name as the program knows them, its state, the
    virtual processor if it has one, what it waits for, and the innermost function that is not the runtime's, with the
    innermost that is not a library's of the language behind it."""

    def __init__(self):
        super(InfoThreads, self).__init__("info upcall threads", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        rows = [("", "Num", "Id", "Name", "State", "Vp", "Waits for", "Function")]
        with Place():
            looked = LOOKED
            for thread in threads():
                try:
                    where = function(thread)
                except (gdb.error, gdb.GdbError) as error:
                    where = "(%s)" % error
                star = "*" if looked is not None and looked.thread.address == thread.address else ""
                vp = "" if thread.vp is None else str(thread.vp)
                row = (star, str(thread.number), str(thread.id), thread.name, thread.state, vp)
                rows.append(row + (thread.waits_for(), where))
        widths = [max(len(row[at]) for row in rows) for at in range(7)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths)]
            gdb.write(" ".join(cells + [row[7]]).rstrip() + "\n")


class ThreadCommand(gdb.Command):
    """Look at a thread of a program under Upcall: upcall thread [N|off].

    Its frames are then those behind the current one, for bt, up, down, frame and all commands that look at a frame. With
    `off`, and when the program goes on, gdb looks at the kernel thread again. Thread-local variables and the registers
    r12 to r15 of the innermost frame are not the thread's."""

    def __init__(self):
        super(ThreadCommand, self).__init__("upcall thread", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if not words:
            gdb.write("looking at " + (title(LOOKED.thread) if LOOKED else "the kernel thread") + "\n")
            return
        if words == ["off"]:
            look(None)
            return
        thread = one_of(threads(), words[0])
        go_to(thread)
        gdb.write("[Upcall thread %s]\n" % title(thread))
        gdb.execute("frame")


class BacktraceCommand(gdb.Command):
    """Print the frames of threads of a program under Upcall: upcall backtrace [N...]. Without a number: of all.

    The runtime's own frames at the innermost end are left out. After `upcall thread N`, bt prints them too. Frames have
    the same numbers there."""

    def __init__(self):
        super(BacktraceCommand, self).__init__("upcall backtrace", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        with Place():
            everything = threads()
            for thread in [one_of(everything, word) for word in words] if words else everything:
                gdb.write("\nUpcall thread %s\n" % title(thread))
                try:
                    go_to(thread)
                    programs_frame().select()
                    gdb.write(own_part(gdb.execute("backtrace", to_string=True)))
                except (gdb.error, gdb.GdbError) as error:
                    gdb.write("(%s)\n" % error)


def own_part(text):
    """The frames from the selected one on."""
    first = "#%d " % gdb.selected_frame().level()
    lines = text.splitlines(True)
    starts = [at for at, line in enumerate(lines) if line.startswith(first)]
    return "".join(lines[starts[0] :]) if starts else text


def one_of(everything, word):
    """The thread of that number or id."""
    try:
        wanted = int(word, 0)
    except ValueError:
        raise gdb.GdbError("upcall: %s is no thread's number; see info upcall threads" % word)
    for thread in everything:
        if wanted in (thread.number, thread.id):
            return thread
    raise gdb.GdbError("upcall: there is no thread %d; see info upcall threads" % wanted)


def forget(_):
    """The program goes on, or has ended: nothing that was read holds any more."""
    global LOOKED
    LOOKED = None


UpcallPrefix()
InfoPrefix()
InfoThreads()
ThreadCommand()
BacktraceCommand()
gdb.unwinder.register_unwinder(None, Unwinder(), replace=True)
gdb.events.cont.connect(forget)
gdb.events.exited.connect(forget)
