//! Says that no thread of the process can ever run again, and where each one waits.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::io::Write as _;
use std::{io, thread};

use upcall_guest::shell;
use upcall_guest::stuck::{self, Waiter};

/// Starts the thread that says it.
pub(crate) fn watch() -> io::Result<()> {
    let report = || {
        if let Some(waiters) = stuck::await_stuck() {
            let _ = io::stderr().write_all(text(&waiters).as_bytes());
        }
    };
    let watcher = thread::Builder::new().name("deadlock".to_owned());
    shell::make_own(|| watcher.spawn(report))?;
    Ok(())
}

fn text(waiters: &[Waiter]) -> String {
    let mut text = format!(
        "upcall: deadlock: all {} threads of process {} wait for one another\n",
        waiters.len(),
        std::process::id()
    );
    for waiter in waiters {
        let _ = writeln!(text, "thread {} '{}' waits at:", waiter.tid, waiter.name);
        for (number, &frame) in waiter.frames.iter().enumerate() {
            let mut place = Place::default();
            // A return address is behind the call.
            let called_at = frame - usize::from(number > 0);
            backtrace::resolve(called_at as *mut c_void, |symbol| place.take(symbol));
            let _ = writeln!(text, "  {number:>3}: {}", place.show(frame));
        }
    }
    text.push_str("(Runtime::builder().report_deadlocks(false) keeps this quiet.)\n");
    text
}

/// The function, without those that are inlined there, and the line of an instruction.
#[derive(Default)]
struct Place {
    name: String,
    line: String,
}

impl Place {
    fn take(&mut self, symbol: &backtrace::Symbol) {
        // The outermost comes last.
        if let Some(name) = symbol.name() {
            self.name = format!("{name:#}");
        }
        if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
            self.line = format!(" ({}:{line})", file.display());
        }
    }

    fn show(&self, frame: usize) -> String {
        match self.name.as_str() {
            "" => format!("{frame:#x}"),
            name => format!("{name}{}", self.line),
        }
    }
}
