//! Whether this user's programs can take turns, and who decides about them.

use super::Finding;
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

/// Whether a daemon decides about turns: the system's, which goes first, or this user's.
pub fn daemon() -> Finding {
    const NAME: &str = "daemon";
    let system = daemon::system_socket();
    match (daemon::spaces_at(system.clone()), daemon::spaces()) {
        (Ok(spaces), _) => Finding::works(
            NAME,
            format!(
                "the system's answers at {}, and has {} programs that this user may see",
                system.display(),
                spaces.len()
            ),
        ),
        (Err(_), Ok(spaces)) => Finding::works(
            NAME,
            format!(
                "this user's answers, and has {} programs; there is none at {}",
                spaces.len(),
                system.display()
            ),
        ),
        (Err(_), Err(trouble)) => Finding::fails(NAME, trouble.evidence(), trouble.remedy()),
    }
}

/// Whether a daemon of root tells programs what the kernel does with their activations.
pub fn observer() -> Finding {
    const NAME: &str = "observed";
    let path = daemon::system_socket();
    match daemon::observes_at(path.clone()) {
        Ok(true) => Finding::works(NAME, format!("upcalld answers at {}", path.display())),
        Ok(false) => Finding::fails(
            NAME,
            format!(
                "upcalld answers at {}, and does not observe",
                path.display()
            ),
            "see in its log why it does not, at its start; or it does not observe this process",
        ),
        Err(daemon::Trouble::NoDaemon(path, error)) => Finding::fails(
            NAME,
            format!("{}: {error}", path.display()),
            "start upcalld as root, without --user; if it cannot observe here, it says why",
        ),
        Err(trouble) => Finding::fails(NAME, trouble.evidence(), trouble.remedy()),
    }
}

/// Whether the scheduler of a daemon of root has all kernel threads.
pub fn scheduler() -> Finding {
    const NAME: &str = "sched_ext";
    const DIRECTORY: &str = "/sys/kernel/sched_ext";
    const CONFIGURE: &str =
        "write scheduler = \"auto\" into /etc/upcall/upcalld.toml, and send SIGHUP to upcalld";
    if !std::path::Path::new(DIRECTORY).exists() {
        return Finding::fails(
            NAME,
            format!("{DIRECTORY} is not there: the kernel takes no scheduler"),
            "use Linux 6.17 or later, built with CONFIG_SCHED_CLASS_EXT",
        );
    }
    let path = daemon::system_socket();
    let loaded = std::fs::read_to_string(format!("{DIRECTORY}/root/ops")).unwrap_or_default();
    match daemon::schedules_at(path.clone()) {
        Ok(true) => Finding::works(
            NAME,
            format!(
                "upcalld answers at {}, and its scheduler has all kernel threads",
                path.display()
            ),
        ),
        Ok(false) if loaded.is_empty() => Finding::fails(
            NAME,
            format!(
                "upcalld answers at {}, and its scheduler is off; {DIRECTORY}/root is not there",
                path.display()
            ),
            format!("{CONFIGURE}; its log says why if it cannot"),
        ),
        Ok(false) => Finding::fails(
            NAME,
            format!(
                "upcalld's scheduler is off; {DIRECTORY}/root/ops says {}",
                loaded.trim()
            ),
            "end that scheduler, and send SIGHUP to upcalld",
        ),
        Err(daemon::Trouble::NoDaemon(path, error)) => Finding::fails(
            NAME,
            format!("{}: {error}", path.display()),
            format!("start upcalld as root, without --user; {CONFIGURE}"),
        ),
        Err(trouble) => Finding::fails(NAME, trouble.evidence(), trouble.remedy()),
    }
}
