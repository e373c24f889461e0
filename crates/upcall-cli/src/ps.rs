//! `upcall ps`: the address spaces that the system's daemon has, and the user's.

use serde::Serialize;
use upcall_abi::{Row, WORDS};
use upcall_linux::turns::daemon::{self, Trouble};

use crate::args::PsArgs;
use crate::refusal::Refusal;
use crate::status::{plain, say, say_json};

#[derive(Serialize)]
struct Report {
    v: u32,
    spaces: Vec<Space>,
}

/// A program, as the daemon tells of it.
#[derive(Serialize)]
pub struct Space {
    pid: u32,
    program: String,
    state: &'static str,
    /// How long it has been in that state, in milliseconds; none while it rests.
    for_ms: Option<u64>,
    /// Processors on which it computes, or would.
    wants: Vec<u32>,
    /// Those of them that it may use.
    has: Vec<u32>,
    /// Its share of the time.
    share: u32,
    /// Whose it is: the number.
    user: u32,
}

#[cfg(target_arch = "x86_64")]
impl Space {
    /// The same in words.
    pub fn sentence(&self) -> String {
        let since = self
            .for_ms
            .map_or(String::new(), |ms| format!(" for {ms}ms"));
        let (wants, has) = (list(&self.wants), list(&self.has));
        format!(
            "{}{since}, wants {wants}, has {has}, share {}",
            self.state, self.share
        )
    }
}

pub fn run(args: &PsArgs) -> i32 {
    let rows = match daemon::spaces() {
        Ok(rows) => rows,
        Err(trouble) => return refusal(&trouble).report(),
    };
    let spaces: Vec<Space> = rows.iter().map(space).collect();
    if args.json {
        return say_json(&Report { v: 1, spaces });
    }
    say(table(&spaces).as_bytes())
}

/// What a row says at this moment.
pub fn space(row: &Row) -> Space {
    let now = upcall_linux::clock(libc::CLOCK_MONOTONIC);
    let has: [u64; WORDS] = std::array::from_fn(|at| row.has[at] & row.wants[at]);
    let program = std::fs::read_to_string(format!("/proc/{}/comm", row.pid));
    Space {
        pid: row.pid,
        program: program.unwrap_or_default().trim_end().into(),
        state: row.state_name(),
        for_ms: (row.since != 0).then(|| now.saturating_sub(row.since) / 1_000_000),
        wants: numbers(&row.wants),
        has: numbers(&has),
        share: row.share,
        user: row.user,
    }
}

fn numbers(set: &[u64; WORDS]) -> Vec<u32> {
    let has = |number: &u32| set[*number as usize / 64] & 1 << (number % 64) != 0;
    (0..upcall_abi::PROCESSORS).filter(has).collect()
}

/// As lists of processors are written: `0-3,8`.
fn list(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |&(first, last): &(u32, u32)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    let parts: Vec<String> = parts.iter().map(part).collect();
    if parts.is_empty() {
        "-".into()
    } else {
        parts.join(",")
    }
}

fn table(spaces: &[Space]) -> String {
    let mut text = format!(
        "{:>8}  {:>5}  {:<8} {:>9}  {:>5}  {:<10} {:<10} PROGRAM\n",
        "PID", "UID", "STATE", "FOR", "SHARE", "WANTS", "HAS"
    );
    for space in spaces {
        let since = space.for_ms.map_or("-".into(), |ms| format!("{ms}ms"));
        let program = plain(&space.program);
        let (wants, has) = (list(&space.wants), list(&space.has));
        text += &format!(
            "{:>8}  {:>5}  {:<8} {since:>9}  {:>5}  {wants:<10} {has:<10} {program}\n",
            space.pid, space.user, space.state, space.share
        );
    }
    text
}

fn refusal(trouble: &Trouble) -> Refusal {
    let what = match trouble {
        Trouble::NoPlace | Trouble::NoDaemon(..) => "there is no daemon to ask",
        Trouble::Version(_) => "the daemon speaks another version",
        Trouble::Silent(_) => "the daemon does not answer",
    };
    Refusal {
        what: what.into(),
        checked: trouble.evidence(),
        remedy: trouble.remedy().into(),
        more: "upcalld --help",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_by_ranges() {
        assert_eq!(list(&numbers(&[0b1_0000_1111, 0, 0, 1 << 63])), "0-3,8,255");
        assert_eq!(list(&numbers(&[0, 1, 0, 0])), "64");
        assert_eq!(list(&[]), "-");
    }

    #[test]
    fn a_name_does_not_command_the_terminal() {
        let spaces = [Space {
            pid: 7,
            program: "a\u{1b}[2Jb".into(),
            state: "on",
            for_ms: Some(5),
            wants: vec![0, 1],
            has: vec![],
            share: 1,
            user: 1000,
        }];
        let text = table(&spaces);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let row = text.lines().nth(1).expect("a row");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["7", "1000", "on", "5ms", "1", "0-1", "-", "a[2Jb"]);
    }
}
