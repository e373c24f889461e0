//! The names of system calls that may block. `gdb/upcall.py` has the same.

/// With a star: the first argument is a descriptor.
const NAMES: &[(u64, &str)] = &[
    (0, "read*"),
    (1, "write*"),
    (7, "poll"),
    (16, "ioctl*"),
    (17, "pread64*"),
    (18, "pwrite64*"),
    (19, "readv*"),
    (20, "writev*"),
    (23, "select"),
    (34, "pause"),
    (35, "nanosleep"),
    (42, "connect*"),
    (43, "accept*"),
    (44, "sendto*"),
    (45, "recvfrom*"),
    (46, "sendmsg*"),
    (47, "recvmsg*"),
    (61, "wait4"),
    (65, "semop"),
    (69, "msgsnd"),
    (70, "msgrcv"),
    (72, "fcntl*"),
    (73, "flock*"),
    (74, "fsync*"),
    (75, "fdatasync*"),
    (128, "rt_sigtimedwait"),
    (130, "rt_sigsuspend"),
    (202, "futex"),
    (220, "semtimedop"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait*"),
    (247, "waitid"),
    (257, "openat"),
    (270, "pselect6"),
    (271, "ppoll"),
    (275, "splice*"),
    (281, "epoll_pwait*"),
    (288, "accept4*"),
    (295, "preadv*"),
    (296, "pwritev*"),
    (299, "recvmmsg*"),
    (307, "sendmmsg*"),
    (318, "getrandom"),
    (326, "copy_file_range*"),
    (426, "io_uring_enter*"),
    (441, "epoll_pwait2*"),
    (449, "futex_waitv"),
];

/// A call with this number and first argument.
pub fn describe(number: u64, first: u64) -> String {
    let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == number) else {
        return format!("system call {number}");
    };
    match name.strip_suffix('*') {
        Some(name) => format!("{name} of descriptor {}", first as u32),
        None => (*name).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall_abi::description::{
        Description, MAGIC, NOTE_TYPE, Offsets, VERSION, activity, standing, state, wait,
    };

    const SCRIPT: &str = include_str!("../../../../gdb/upcall.py");

    fn between<'a>(start: &str, end: &str) -> &'a str {
        let rest = SCRIPT.split(start).nth(1).expect(start);
        rest.split(end).next().expect(end)
    }

    #[test]
    fn the_script_for_gdb_knows_the_same_calls() {
        let text = between("for word in \"\"\"\n", "\"\"\"");
        let words: Vec<String> = NAMES
            .iter()
            .map(|(number, name)| format!("{number}:{name}"))
            .collect();
        let found: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(found, words);
        assert_eq!(describe(0, 5), "read of descriptor 5");
        assert_eq!(describe(202, 5), "futex");
        assert_eq!(describe(9999, 5), "system call 9999");
    }

    #[test]
    fn the_script_for_gdb_knows_the_same_layout() {
        let names: Vec<&str> = between("OFFSETS = \"\"\"\n", "\"\"\"")
            .split_whitespace()
            .collect();
        assert_eq!(names, Offsets::NAMES);
        for line in [
            format!("MAGIC = 0x{MAGIC:X}"),
            format!("VERSION = {VERSION}"),
            format!("NOTE_TYPE = {NOTE_TYPE}"),
        ] {
            assert!(SCRIPT.contains(&format!("\n{line}\n")), "{line}");
        }
        // Six addresses behind the head, then the offsets, then the four tables.
        let first = std::mem::offset_of!(Description<u64>, runtime);
        let offsets = std::mem::offset_of!(Description<u64>, offsets);
        let tables = std::mem::offset_of!(Description<u64>, standings);
        assert_eq!((first, offsets), (16, 64));
        assert_eq!(tables, offsets + 4 * Offsets::NAMES.len());
        assert_eq!(
            size_of::<Description<u64>>().next_multiple_of(8),
            (tables + 44).next_multiple_of(8)
        );
        for (names, numbers) in [
            (
                "STANDING_RUNNING, STANDING_PARKING, STANDING_PARKED, STANDING_READY, STANDING_HELD, STANDING_WOKEN = range(1, 7)",
                [
                    standing::RUNNING,
                    standing::PARKING,
                    standing::PARKED,
                    standing::READY,
                    standing::HELD,
                    standing::WOKEN,
                ]
                .as_slice(),
            ),
            (
                "ACTIVITY_RUNNING, ACTIVITY_IN_CALL, ACTIVITY_DISPLACED, ACTIVITY_UNSETTLED, ACTIVITY_ALONE = range(1, 6)",
                &[
                    activity::RUNNING,
                    activity::IN_CALL,
                    activity::DISPLACED,
                    activity::UNSETTLED,
                    activity::ALONE,
                ],
            ),
            (
                "STATE_RUNNING, STATE_IN_CALL, STATE_IDLE = range(1, 4)",
                &[state::RUNNING, state::IN_CALL, state::IDLE],
            ),
            (
                "WAIT_WORD, WAIT_SLEEP, WAIT_END = range(1, 4)",
                &[wait::WORD, wait::SLEEP, wait::END],
            ),
        ] {
            assert!(SCRIPT.contains(&format!("\n{names}\n")), "{names}");
            assert!(numbers.iter().copied().eq(1..=numbers.len() as u8));
        }
    }
}
