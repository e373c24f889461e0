//! `upcall top` on a terminal and without one. With programs it is tested in `tests/programs`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::common::upcall;

fn top(words: &[&str]) -> Command {
    let mut command = upcall();
    command.arg("top").args(words).env("TERM", "xterm");
    command
}

/// It is refused, in four lines.
fn refused(mut command: Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{talk}");
    assert!(output.stdout.is_empty());
    assert_eq!(talk.lines().count(), 4, "{talk}");
    talk
}

#[test]
fn without_a_terminal_it_names_once() {
    assert!(refused(top(&[])).contains("--once"));
}

#[test]
fn a_process_that_is_not_there_is_said_to_be_not_there() {
    // Ids end at 2^22.
    let talk = refused(top(&["--once", "-p", "2147483647"]));
    assert!(talk.contains("there is no such process"), "{talk}");
}

#[test]
fn words_that_mean_nothing_are_refused() {
    for words in [
        &["--json"][..],
        &["-d", "0"],
        &["-d", "nan"],
        &["-d", "1e9"],
        &["-d", "soon"],
        &["-p", "0"],
        &["--sort", "colour"],
    ] {
        let status = top(words).stderr(Stdio::null()).status().expect("it runs");
        assert_eq!(status.code(), Some(125), "{words:?}");
    }
}

#[test]
fn once_prints_a_table_with_a_head_and_json_one_object() {
    let output = top(&["--once", "-d", "0.1"]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success() && text.contains("PID") && text.contains("PROGRAM"),
        "{text}"
    );
    let output = top(&["--once", "--json", "-d", "0.1"])
        .output()
        .expect("it runs");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["v"], 1);
    assert!(
        json["programs"].is_array() && json["processors"].is_array(),
        "{json}"
    );
}

/// A segment whose program was killed before it could mark it for removal is removed by the next one that looks.
#[test]
fn what_a_killed_program_has_left_is_removed() {
    let leave = |magic: u64| -> i32 {
        // SAFETY: the child makes system calls alone, and ends.
        unsafe {
            let id = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
            .cast::<i32>();
            let child = libc::fork();
            if child == 0 {
                let size = upcall_abi::live::SIZE;
                *id = libc::shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600);
                let place = libc::shmat(*id, std::ptr::null(), 0).cast::<u64>();
                *place = magic;
                libc::_exit(0);
            }
            libc::waitpid(child, std::ptr::null_mut(), 0);
            *id
        }
    };
    let ask = |id: i32, what: i32| {
        let mut state = std::mem::MaybeUninit::<libc::shmid_ds>::uninit();
        // SAFETY: fills in the structure, or removes the segment, if there is one.
        unsafe { libc::shmctl(id, what, state.as_mut_ptr()) == 0 }
    };
    let (ours, others) = (leave(upcall_abi::live::MAGIC), leave(1));
    let output = top(&["--once", "-d", "0.1"]).output().expect("it runs");
    assert!(output.status.success());
    let left = ask(ours, libc::IPC_STAT);
    let kept = ask(others, libc::IPC_RMID);
    assert!(!left && kept, "{left} {kept}");
}

/// The command on a terminal of its own.
struct OnTerminal {
    child: Child,
    /// The end that a terminal emulator has.
    emulator: File,
    terminal: File,
    before: libc::termios,
    shown: String,
}

fn settings(terminal: &File) -> libc::termios {
    // SAFETY: all-zero is a valid structure, which the call fills in.
    unsafe {
        let mut settings = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings), 0);
        settings
    }
}

impl OnTerminal {
    fn start(words: &[&str], columns: u16) -> Self {
        let size = libc::winsize {
            ws_row: 20,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (mut emulator, mut terminal) = (0, 0);
        // SAFETY: two new descriptors, which nobody else has.
        let (emulator, terminal) = unsafe {
            let (name, settings) = (std::ptr::null_mut(), std::ptr::null_mut());
            let made = libc::openpty(
                &raw mut emulator,
                &raw mut terminal,
                name,
                settings,
                (&raw const size).cast_mut(),
            );
            assert_eq!(made, 0);
            libc::fcntl(emulator, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(terminal, libc::F_SETFD, libc::FD_CLOEXEC);
            (File::from_raw_fd(emulator), File::from_raw_fd(terminal))
        };
        let before = settings(&terminal);
        let end = || Stdio::from(terminal.try_clone().expect("a descriptor"));
        let mut command = top(words);
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: system calls on plain values.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("the command runs");
        OnTerminal {
            child,
            emulator,
            terminal,
            before,
            shown: String::new(),
        }
    }

    /// Reads until it has shown this.
    fn shows(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.shown.contains(text) {
            let mut ready = libc::pollfd {
                fd: self.emulator.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one structure. The test's runner ends what takes longer than this.
            let answer = unsafe { libc::poll(&raw mut ready, 1, 60_000) };
            assert_eq!(answer, 1, "nothing but {:?}", self.shown);
            let length = self
                .emulator
                .read(&mut buffer)
                .expect("the terminal is there");
            self.shown += &String::from_utf8_lossy(&buffer[..length]);
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.emulator
            .write_all(keys)
            .expect("the terminal takes keys");
    }

    /// It ends, and the terminal is as it was.
    fn ends(mut self) -> ExitStatus {
        self.shows("\u{1b}[?1049l");
        let status = self.child.wait().expect("it is a child");
        let after = settings(&self.terminal);
        let before = self.before;
        let flags = |one: &libc::termios| (one.c_iflag, one.c_oflag, one.c_cflag, one.c_lflag);
        assert_eq!(flags(&after), flags(&before));
        assert!(self.shown.contains("\u{1b}[?25h"), "{:?}", self.shown);
        status
    }
}

#[test]
fn q_ends_it_and_the_terminal_is_as_before() {
    for (keys, columns) in [(&b"q"[..], 100), (b"\x03", 40)] {
        let mut top = OnTerminal::start(&[], columns);
        top.shows("upcall top:");
        top.press(b"prcu");
        top.press(keys);
        assert_eq!(top.ends().code(), Some(0));
    }
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_before() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let mut top = OnTerminal::start(&["-d", "3600"], 80);
        top.shows("upcall top:");
        // SAFETY: a child of ours.
        unsafe { libc::kill(top.child.id() as i32, signal) };
        assert_eq!(top.ends().signal(), Some(signal));
    }
}
