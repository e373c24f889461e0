//! `--stats`: what the runtime counted, on standard error, as it was at the start, when the process ends.

use std::fmt::Write;

use upcall_linux::{Runtime, sys};

use crate::{dispatch, sud};

/// A buffer on the stack: nothing may be allocated while the process ends.
struct Text {
    bytes: [u8; 2048],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.len;
        let take = text.len().min(room);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Prints the counters of a runtime.
pub fn print(runtime: &'static Runtime, descriptor: i32) {
    let stats = runtime.stats();
    let mut text = Text {
        bytes: [0; 2048],
        len: 0,
    };
    let turns = runtime.kernel().gang().report().unwrap_or_default();
    let rows: [(&str, u64); 19] = [
        ("virtual processors", runtime.vps().len() as u64),
        ("threads created", stats.created.get()),
        ("threads at peak", stats.threads.peak()),
        ("switches", runtime.switches()),
        ("upcalls: blocked", stats.blocked.get()),
        ("upcalls: unblocked", stats.unblocked.get()),
        (
            "upcalls: preempted by a returning one",
            stats.displaced.get(),
        ),
        ("upcalls: processor added", stats.rung.get()),
        ("upcalls: processor taken", stats.taken.get()),
        ("time-slice preemptions", stats.preempted.get()),
        ("threads stolen", stats.stolen.get()),
        ("activations at peak", stats.activations.peak()),
        ("activations recycled", stats.recycled.get()),
        ("activations refused by the kernel", stats.refused.get()),
        ("activations blocked at peak", stats.absent.peak()),
        ("parked on the poller", stats.polled.get()),
        ("activations now", stats.activations.get()),
        ("turns taken after waiting", turns.turns),
        ("waited for turns, us", turns.waited_ns / 1000),
    ];
    for (name, value) in rows {
        // Writing to the buffer cannot fail.
        let _ = writeln!(text, "upcall: {name:<38} {value:>12}");
    }
    let (refused, failed) = dispatch::state();
    for (name, value) in [
        ("sites that cannot be rewritten", u64::from(refused)),
        ("system-call dispatch is on", u64::from(dispatch::is_on())),
        ("system calls caught by it", sud::trapped()),
    ] {
        let _ = writeln!(text, "upcall: {name:<38} {value:>12}");
    }
    if let Some(errno) = failed {
        let _ = writeln!(
            text,
            "upcall: calls outside rewritten sites are not seen: no Syscall User Dispatch \
             (errno {errno}); see upcall doctor syscall-user-dispatch"
        );
    }
    if let Some(trouble) = runtime.kernel().gang().trouble() {
        let _ = writeln!(
            text,
            "upcall: no turns with other programs: {}; see upcall doctor turns",
            trouble.as_str()
        );
    }
    sys::say_to(descriptor, &text.bytes[..text.len]);
}
