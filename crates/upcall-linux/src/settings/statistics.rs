//! The rows of `upcall run --stats`: the names that the guest library prints, and what the manual says of each.

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As it is printed.
    pub name: &'static str,
    /// What is counted.
    pub meaning: &'static str,
}

const fn row(name: &'static str, meaning: &'static str) -> Row {
    Row { name, meaning }
}

/// All rows, in the order in which they are printed.
pub const ROWS: [Row; 31] = [
    row(
        "virtual processors",
        "How many threads the program can run at once (upcall run -p).",
    ),
    row(
        "time of virtual processors (us)",
        "How long there were virtual processors, all together.",
    ),
    row(
        "of that idle (us)",
        "How long they had nothing to run. The rest is what threads and the runtime had, or other programs in between.",
    ),
    row(
        "threads created",
        "Threads that the program made; its first thread does not count.",
    ),
    row(
        "threads at peak",
        "The most threads that existed at once, with the first one.",
    ),
    row(
        "switches",
        "How often a virtual processor went from one thread to another.",
    ),
    row(
        "upcalls: blocked",
        "A thread blocked in the kernel, and its virtual processor was given to another activation.",
    ),
    row(
        "upcalls: unblocked",
        "A thread came back from the kernel, and could run again.",
    ),
    row(
        "upcalls: preempted by a returning one",
        "A running activation made room for another one of its virtual processor that came back.",
    ),
    row(
        "upcalls: processor added",
        "An idle virtual processor was woken because a thread was ready.",
    ),
    row(
        "upcalls: processor taken",
        "A virtual processor stopped because it was another program's turn.",
    ),
    row(
        "time-slice preemptions",
        "A thread had computed for a time slice (UPCALL_SLICE_US), and another one was ready.",
    ),
    row(
        "threads stolen",
        "A virtual processor without work took a ready thread from another one's list.",
    ),
    row(
        "pieces taken",
        "A thread was made for work that was forked (upcall::join) and had not begun, because a virtual processor had no other.",
    ),
    row(
        "activations at peak",
        "The most kernel threads that carried threads, or were ready to, at once.",
    ),
    row(
        "activations recycled",
        "How often a kernel thread without work was used again where a new one would have been made.",
    ),
    row(
        "activations refused by the kernel",
        "How often the kernel gave no further kernel thread, for want of memory or because of a limit.",
    ),
    row(
        "activations blocked at peak",
        "The most kernel threads that were blocked in the kernel, and replaced, at once.",
    ),
    row(
        "parked on the poller",
        "How often a thread waited for a descriptor at user level, without a kernel thread.",
    ),
    row(
        "activations now",
        "Kernel threads at the end of the program.",
    ),
    row(
        "turns taken after waiting",
        "How often the program got the processors after it had waited for its turn among other programs.",
    ),
    row(
        "waited for turns, us",
        "For how long it waited for that, all together, in microseconds.",
    ),
    row(
        "turns given by upcalld",
        "How many of these the daemon gave (upcalld); the others the programs gave each other.",
    ),
    row(
        "turns left at a warning",
        "How often it left its processors before the end of its turn, because the daemon had warned it.",
    ),
    row(
        "truces",
        "How often turns rested for a while, because programs that take none computed on the same processors.",
    ),
    row(
        "looks at the kernel's page",
        "How often the page that upcalld has the kernel write said if an activation was blocked: a system call saved each time.",
    ),
    row(
        "looks that it did not answer",
        "How often procfs was asked although there was the page, to be sure that the page is still written.",
    ),
    row(
        "preempted by other programs",
        "How often a kernel thread of another program took the processor of one of this program, as far as the page knows.",
    ),
    row(
        "sites that cannot be rewritten",
        "System-call instructions in the program's objects that were left as they are.",
    ),
    row(
        "system-call dispatch is on",
        "1 if Syscall User Dispatch catches system calls that were not rewritten.",
    ),
    row(
        "system calls caught by it",
        "How many it caught. Each costs about a microsecond.",
    ),
];
