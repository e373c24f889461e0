//! `upcalld`: divides the processors among the programs that run under Upcall, or observes what the kernel does with them.
//!
//! | room | what it does |
//! |---|---|
//! | `trouble` | what can go wrong, and how the daemon ends |
//! | `words` | what spaces say and are told |
//! | `commons`, `shares`, `division` | who is to have which processors: pure |
//! | `lending` | what those weigh that have them: pure |
//! | `house` | who has them: pure |
//! | `packets` | packets of the socket, with their senders |
//! | `pages` | the shared memory of a space |
//! | `groups` | the groups of the kernel's scheduler |
//! | `weights` | sets weights, and puts them back |
//! | `place` | the socket, the lock, stale ones |
//! | `config` | the configuration |
//! | `log` | what is logged |
//! | `metrics` | what is counted, and who asks for it |
//! | `manager` | the service manager |
//! | `scheduler` | the scheduler of sched_ext |
//! | `serve` | the loop |

mod commons;
mod config;
mod division;
mod groups;
mod house;
mod lending;
mod log;
mod manager;
mod meter;
mod metrics;
mod packets;
mod pages;
mod place;
mod scheduler;
mod serve;
mod shares;
mod trouble;
mod weights;
mod words;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use rustix::process::Resource;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use upcall_alloc::Bits;
use upcall_bpf::Observatory;
use upcall_linux::limits;
use upcall_linux::turns::daemon;

use config::Source;
use house::House;
use log::Log;
use place::Scope;
use trouble::{Exit, Trouble};
use weights::Weights;
use words::Terms;

const TERMS: Terms = Terms {
    slice_ns: 20_000_000,
    spell_ns: 5_000_000,
    grace_ns: 30_000_000,
    longest_truce_ns: 2_000_000_000,
    patience: 3,
};

/// Divides the processors among the programs that run under Upcall.
///
/// The daemon stays in the foreground. SIGTERM or SIGINT ends it, SIGHUP has it read its configuration again. However it ends, programs go on without it and
/// take turns.
#[derive(Parser, Debug)]
#[command(name = "upcalld", version, after_help = AFTER_HELP)]
struct Args {
    /// Divide the processors among this user's programs, without any privilege.
    ///
    /// Without this flag the daemon, run by root, divides them among the programs of all users, lends weight to the one that is
    /// on, and observes what the kernel's scheduler does with their kernel threads.
    #[arg(long, env = "UPCALLD_USER")]
    user: bool,
    /// What is logged to standard error: off, error, warn, info, debug or trace [default: as configured, or warn].
    #[arg(long, value_name = "LEVEL", env = "UPCALLD_LOG")]
    log: Option<tracing::level_filters::LevelFilter>,
    /// The configuration, in place of the usual file, which need not be there.
    #[arg(long, value_name = "FILE", env = "UPCALLD_CONFIG")]
    config: Option<PathBuf>,
    /// Read the configuration, say what is wrong with it, and end.
    #[arg(long)]
    check: bool,
    /// Put back what a daemon has left that was killed, say what that was, and end.
    #[arg(long, conflicts_with = "check")]
    clean: bool,
    /// Where the socket is. Programs look at the default place.
    #[arg(long, value_name = "PATH", hide = true, env = "UPCALLD_SOCKET")]
    socket: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
The socket is upcall/upcalld.sock under XDG_RUNTIME_DIR, or under /run/user/UID if that variable is not set.
Without --user it is /run/upcall/upcalld.sock.
The configuration is upcall/upcalld.toml under XDG_CONFIG_HOME, or under ~/.config. Without --user it is
/etc/upcall/upcalld.toml. SIGHUP has it read again; if the new one makes no sense, the old one holds.

Exit status:
  0  SIGTERM or SIGINT has ended the daemon
  1  the kernel has refused something, so that it could not go on
  2  the arguments make no sense
  3  another daemon runs at this place
  4  the directory or the socket cannot be used
  6  the configuration cannot be used";

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::from(Exit::Ended as u8),
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::from(trouble.exit as u8)
        }
    }
}

fn run(args: &Args) -> Result<(), Trouble> {
    let (scope, usual) = match args.user {
        true => (Scope::User, daemon::socket()),
        false => (Scope::All, Some(PathBuf::from(daemon::SYSTEM_SOCKET))),
    };
    // Before anything else has a descriptor: it is a number.
    let passed = manager::socket()?;
    let source = Source::new(args.config.clone(), scope);
    let config = source.read()?;
    if args.check {
        return Ok(());
    }
    let log = Log::begin(args.log);
    log.follow(&config);
    let named = args.socket.clone().or(usual);
    let no_place = || Trouble {
        exit: Exit::Place,
        what: "there is no place for the socket".into(),
        evidence: match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(name) if !name.is_empty() => {
                format!("XDG_RUNTIME_DIR is {}: no directory", name.display())
            }
            _ => "XDG_RUNTIME_DIR is not set, and /run/user has no directory of this user".into(),
        },
        remedy: "set XDG_RUNTIME_DIR to a directory of your own, that programs use too".into(),
    };
    if args.clean {
        return clean(&named.ok_or_else(no_place)?, scope);
    }
    // A space takes five descriptors, eight if it is observed. If the limit stays lower, there are fewer.
    let mut limits = rustix::process::getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, limits);
    // Before there is a socket: a signal that comes now is not lost.
    let end = signals(&[SIGTERM, SIGINT])?;
    let again = signals(&[SIGHUP])?;
    let place = match passed {
        Some((listener, path)) => place::take_over(listener, &path, scope)?,
        None => place::take(&named.ok_or_else(no_place)?, scope)?,
    };
    let path = place.path.clone();
    mend(&path)?;
    let (observatory, weights) = match scope {
        Scope::User => (None, None),
        Scope::All => (observatory(), weights(&path)),
    };
    let work = work(scope, observatory.is_some(), weights.is_some());
    let exporter = serve::exporter(config.metrics.as_ref())?;
    let house = House::new(machine(), own(), TERMS);
    let settings = serve::Settings {
        source,
        config,
        log,
    };
    let server = serve::Server::new(
        place,
        [end, again],
        (settings, exporter),
        (house, machine()),
        (observatory, weights),
    )
    .map_err(|error| Trouble::broken("cannot wait for programs", error))?;
    manager::tell(manager::State::Ready, &work);
    tracing::info!(socket = %path.display(), "serving");
    server.serve()
}

/// What the daemon does, for the service manager.
fn work(scope: Scope, observes: bool, lends: bool) -> String {
    let whose = match scope {
        Scope::User => return "Divides the processors among this user's programs".into(),
        Scope::All => "Divides the processors among all users' programs",
    };
    let lends = if lends {
        "lends weight"
    } else {
        "lends no weight"
    };
    let observes = if observes {
        "observes"
    } else {
        "does not observe"
    };
    format!("{whose}, {lends}, {observes}")
}

/// Puts back what a daemon has left at this socket that was killed.
fn mend(socket: &Path) -> Result<usize, Trouble> {
    let journal = weights::journal(socket);
    let mended = weights::mend(&journal).map_err(|error| Trouble {
        exit: Exit::Place,
        what: "what a killed daemon has lent cannot be put back".into(),
        evidence: format!("{}: {error}", journal.display()),
        remedy: "remove that file; programs that are named there may have nice values below 0"
            .into(),
    })?;
    if mended != 0 {
        tracing::warn!(
            programs = mended,
            "put back the weight that a killed daemon had lent"
        );
    }
    Ok(mended)
}

/// `--clean`.
fn clean(socket: &Path, scope: Scope) -> Result<(), Trouble> {
    let (mended, was_there) = place::clean(socket, scope, |path| {
        Ok((mend(path)?, path.symlink_metadata().is_ok()))
    })?;
    let socket = match was_there {
        true => "removed",
        false => "not there",
    };
    println!("weights put back: {mended} programs; socket: {socket}");
    Ok(())
}

/// What becomes readable when one of these signals has come.
fn signals(numbers: &[i32]) -> Result<UnixStream, Trouble> {
    let (seen, sent) =
        UnixStream::pair().map_err(|error| Trouble::broken("cannot make a pipe", error))?;
    seen.set_nonblocking(true)
        .map_err(|error| Trouble::broken("cannot use a pipe", error))?;
    for &number in numbers {
        let sent = sent
            .try_clone()
            .map_err(|error| Trouble::broken("cannot make a pipe", error))?;
        signal_hook::low_level::pipe::register(number, sent)
            .map_err(|error| Trouble::broken("cannot wait for signals", error))?;
    }
    Ok(seen)
}

/// The BPF programs, in force; none, aloud: they cannot be.
fn observatory() -> Option<Observatory> {
    match Observatory::start() {
        Ok(observatory) => Some(observatory),
        Err(trouble) => {
            let upcall_bpf::Trouble {
                what,
                evidence,
                remedy,
            } = trouble;
            tracing::warn!(evidence, remedy, "programs are not observed: {what}");
            None
        }
    }
}

/// What lends weight; none, aloud: the kernel refuses.
fn weights(socket: &Path) -> Option<Weights> {
    match Weights::new(weights::journal(socket)) {
        Ok(weights) => Some(weights),
        Err(error) => {
            tracing::warn!(
                %error,
                remedy = "give it CAP_SYS_NICE, and a directory that it may write",
                "no weight is lent: turns rest beside ordinary programs"
            );
            None
        }
    }
}

/// The processors that the machine may have, by number modulo the size of a set; all if it does not say.
fn machine() -> Bits {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    listed(&text).unwrap_or(Bits([u64::MAX; 4]))
}

/// The processors on which the daemon may run: those that spaces which adapt share. None, if some are not told apart.
fn own() -> Bits {
    let mut own = Bits::default();
    for number in limits::allowed_processors() {
        if number >= upcall_abi::PROCESSORS {
            return Bits::default();
        }
        own.0[number as usize / 64] |= 1 << (number % 64);
    }
    own
}

/// Reads a list such as `0-3,8`; `None` if it names none.
fn listed(text: &str) -> Option<Bits> {
    let mut bits = Bits::default();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        for number in first..=last.min(first.saturating_add(1 << 16)) {
            let number = number % upcall_abi::PROCESSORS;
            bits.0[number as usize / 64] |= 1 << (number % 64);
        }
    }
    (!bits.is_empty()).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_read() {
        assert_eq!(listed("0-3,8\n"), Some(Bits([0b1_0000_1111, 0, 0, 0])));
        assert_eq!(listed("255-256"), Some(Bits([1, 0, 0, 1 << 63])));
        for nonsense in ["", "x", "1-", "3-1"] {
            assert_eq!(listed(nonsense), None, "{nonsense}");
        }
        assert!(listed("0-4294967295").is_some());
    }

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
