//! A daemon of a test's own, in a directory of the test's own.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::yield_now;
use std::time::Instant;

use program_tests::guard::limit;

/// The variables that would change a daemon.
const OF_THE_DAEMON: [&str; 5] = [
    "UPCALLD_CONFIG",
    "UPCALLD_LOG",
    "UPCALLD_SOCKET",
    "UPCALLD_USER",
    "NOTIFY_SOCKET",
];

/// A directory in place of XDG_RUNTIME_DIR.
pub struct Place(pub PathBuf);

impl Place {
    /// Empty, and the user's alone. Its path is short, because addresses of sockets are.
    pub fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Two tests may choose the same name.
        let (pid, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("upcalld-{pid}-{number}-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .expect("a directory");
        Place(path)
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("upcall/upcalld.sock")
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upcalld"));
        command.arg("--user").env("XDG_RUNTIME_DIR", &self.0);
        for name in OF_THE_DAEMON {
            command.env_remove(name);
        }
        // Not that of the user who tests.
        command.env("XDG_CONFIG_HOME", self.0.join("config"));
        command
    }

    /// Writes its configuration, where it looks for one.
    pub fn configure(&self, text: &str) {
        let directory = self.0.join("config/upcall");
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("upcalld.toml"), text).expect("written");
    }

    /// Where the daemon of root is, in a test.
    pub fn observer(&self) -> PathBuf {
        self.0.join("observer/upcalld.sock")
    }

    /// The command of a daemon of root.
    pub fn of_system(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upcalld"));
        for name in OF_THE_DAEMON {
            command.env_remove(name);
        }
        command.arg("--socket").arg(self.observer());
        command
    }

    /// A daemon of root.
    pub fn observe(&self) -> Daemon {
        self.configure("");
        let mut command = self.of_system();
        command
            .arg("--config")
            .arg(self.0.join("config/upcall/upcalld.toml"));
        Self::serving(command)
    }

    /// A daemon that serves.
    pub fn start(&self) -> Daemon {
        Self::serving(self.command())
    }

    /// A daemon of this command, once it serves.
    pub fn serving(mut command: Command) -> Daemon {
        let mut child = command
            .args(["--log", "info"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        let mut talk = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut before = String::new();
        while !before.contains("serving") {
            let length = talk.read_line(&mut before).expect("text");
            assert_ne!(length, 0, "the daemon ended: {:?}: {before}", child.wait());
        }
        let heard = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&heard);
        // So that it never waits for a reader.
        std::thread::spawn(move || {
            let mut line = String::new();
            while talk.read_line(&mut line).is_ok_and(|length| length != 0) {
                all.lock().expect("no panic").push_str(&line);
                line.clear();
            }
        });
        Daemon {
            child,
            heard,
            before,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Killed when it is dropped.
pub struct Daemon {
    child: Child,
    heard: Arc<Mutex<String>>,
    /// What it has said until it served.
    pub before: String,
}

impl Daemon {
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: it has not been waited for: the id is its own.
        let answer = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(answer, 0);
    }

    /// How it ends.
    pub fn wait(&mut self) -> ExitStatus {
        ends(&mut self.child)
    }

    /// Waits until it has said this, since it serves. Returns all that it has said.
    pub fn says(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let heard = self.heard.lock().expect("no panic").clone();
            if heard.contains(text) {
                return heard;
            }
            let is_late = begun.elapsed() >= limit();
            assert!(!is_late, "never: {text}, but: {}{heard}", self.before);
            yield_now();
        }
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).expect("it lives").count()
    }

    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// How often it has gone to sleep.
    pub fn sleeps(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).expect("it lives");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("the line").trim().parse().expect("a number")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a child.
pub fn ends(child: &mut Child) -> ExitStatus {
    until("the process ends", || child.try_wait().expect("a child"))
}

/// Asks until there is an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < limit(), "never: {what}");
        yield_now();
    }
}

/// Whether something has that name.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
