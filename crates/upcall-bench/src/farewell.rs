//! What is said when a signal ends the command: the tables until then are kept, and where.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::OnceLock;

static WORDS: OnceLock<String> = OnceLock::new();

/// From here on a signal that ends the command has it say where `results` are.
pub fn prepare(results: &Path) {
    // The progress bar may be in this line.
    let line = match std::io::stderr().is_terminal() {
        true => "\r\u{1b}[2K",
        false => "",
    };
    let folder = match results.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let words = format!(
        "{line}upcall bench: ended by a signal; the tables that were whole are in {}: upcall report {}\n",
        results.display(),
        folder.display()
    );
    if WORDS.set(words).is_err() {
        return;
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler does what a signal handler may do. What is ignored, as by nohup(1), stays so.
        unsafe {
            if libc::signal(signal, end as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

extern "C" fn end(signal: libc::c_int) {
    if let Some(words) = WORDS.get() {
        // SAFETY: safe in a signal handler (signal-safety(7)), and reads these bytes only.
        unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    // SAFETY: safe in a signal handler; the signal ends the process when this handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
