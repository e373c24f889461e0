//! Whether this user's programs can take turns, and who decides about them.

use super::Finding;
use crate::blocked::page;
use crate::turns::daemon;
use crate::turns::registry::{self, Trouble};

/// Opens the shared file as a program would.
#[must_use]
pub fn turns() -> Finding {
    const NAME: &str = "turns";
    let path = registry::path();
    match registry::look() {
        Ok(living) => Finding::works(
            NAME,
            format!("{path} is this user's alone; {living} programs are in it"),
        ),
        Err(Trouble::Open(number)) => Finding::fails(
            NAME,
            format!("{path}: {}", std::io::Error::from_raw_os_error(number)),
            "mount a tmpfs at /dev/shm that this user may write to",
        ),
        Err(Trouble::NotOurs) => Finding::fails(
            NAME,
            format!("{path} is not a file of this user's alone"),
            "remove that file, which somebody else has put there",
        ),
        Err(Trouble::Layout) => Finding::fails(
            NAME,
            format!("{path} has a layout that this version does not know"),
            "remove that file when no program uses it",
        ),
        Err(Trouble::Full) => Finding::fails(
            NAME,
            format!("{path} is full: {} programs", registry::SLOTS),
            "run fewer programs at once; those in it take turns, the others do not",
        ),
    }
}

/// Whether a daemon of this user decides about turns.
pub fn daemon() -> Finding {
    const NAME: &str = "daemon";
    match daemon::spaces() {
        Ok(spaces) => Finding::works(
            NAME,
            format!("it answers, and has {} programs", spaces.len()),
        ),
        Err(trouble) => Finding::fails(NAME, trouble.evidence(), trouble.remedy()),
    }
}

/// Whether a daemon of root tells programs what the kernel does with their activations.
pub fn observer() -> Finding {
    const NAME: &str = "observed";
    let path = page::observer_socket();
    match daemon::spaces_at(path.clone()) {
        Ok(_) => Finding::works(NAME, format!("upcalld answers at {}", path.display())),
        Err(daemon::Trouble::NoDaemon(path, error)) => Finding::fails(
            NAME,
            format!("{}: {error}", path.display()),
            "start upcalld as root, without --user; if it cannot observe here, it says why",
        ),
        Err(trouble) => Finding::fails(NAME, trouble.evidence(), trouble.remedy()),
    }
}
