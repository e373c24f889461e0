//! The recorded counts, and what others are beside them.

use std::fmt::Write;

/// As `--counts` printed it when it was recorded.
pub const RECORDED: &str = include_str!("recorded.txt");

/// How to record.
pub const RECORD: &str = "target/release/upcall bench --counts >counts && mv counts crates/upcall-bench/src/counts/recorded.txt";

/// An operation may take more instructions than recorded by this factor: compilers and C libraries differ.
const MARGIN: f64 = 1.1;

/// What is not worth a word: whether an activation sits in the poller is asked in a few instructions more if none does,
/// and that is decided before the process stops.
const NOISE: f64 = 0.012;

/// Of what is counted one by one, it may be more by so much, which is nothing but for parts in a thousand.
const SLACK: f64 = 0.5;

/// What one operation takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub instructions: f64,
    /// Those of them that no other processor comes in between.
    pub locked: f64,
    /// How often the FS base, the thread pointer, is set: by an instruction, or by a system call.
    pub fs_writes: f64,
    /// Those of them that enter the kernel.
    pub calls: f64,
}

/// What a row is beside the recorded one.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Same,
    /// Other than recorded, within the margin or below, or not recorded yet.
    Other(String),
    /// More, beyond the margin.
    More(String),
}

/// The table, as it is recorded.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "# What an operation takes on one virtual processor, one thread or switch where there are more.\n\
         # By upcall bench --counts; held by upcall bench --counts --check.\n",
    );
    let heads = [
        "# operation",
        "instructions",
        "locked",
        "fs_writes",
        "calls",
    ];
    let mut line = |[name, instructions, locked, fs_writes, calls]: [&str; 5]| {
        let _ = writeln!(
            text,
            "{name:16} {instructions:>12} {locked:>8} {fs_writes:>10} {calls:>8}"
        );
    };
    line(heads);
    for row in rows {
        let [instructions, locked, fs_writes, calls] =
            [row.instructions, row.locked, row.fs_writes, row.calls].map(number);
        line([&row.name, &instructions, &locked, &fs_writes, &calls]);
    }
    text
}

/// In hundredths, which mostly there are none of.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let whole = text.strip_suffix(".00");
    whole.map_or(text.clone(), str::to_owned)
}

/// The rows of a table; none, if one of its lines is none.
fn rows(text: &str) -> Option<Vec<Row>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            let [instructions, locked, fs_writes, calls] =
                [(); 4].map(|()| words.next()?.parse().ok());
            words.next().is_none().then_some(())?;
            Some(Row {
                name,
                instructions: instructions?,
                locked: locked?,
                fs_writes: fs_writes?,
                calls: calls?,
            })
        })
        .collect()
}

/// What `row` is beside what is recorded.
pub fn judge(row: &Row) -> Verdict {
    beside(row, &rows(RECORDED).unwrap_or_default())
}

fn beside(row: &Row, recorded: &[Row]) -> Verdict {
    let Some(was) = recorded.iter().find(|was| was.name == row.name) else {
        return Verdict::Other("not recorded yet".into());
    };
    let kinds = [
        (
            "instructions",
            row.instructions,
            was.instructions,
            was.instructions * MARGIN,
        ),
        (
            "locked instructions",
            row.locked,
            was.locked,
            was.locked + SLACK,
        ),
        (
            "writes of the FS base",
            row.fs_writes,
            was.fs_writes,
            was.fs_writes + SLACK,
        ),
        ("system calls", row.calls, was.calls, was.calls + SLACK),
    ];
    let mut texts = Vec::new();
    let mut more = false;
    for (kind, now, was, most) in kinds {
        more |= now > most;
        if (now - was).abs() > was * NOISE {
            texts.push(format!("{} {kind}, {} recorded", number(now), number(was)));
        }
    }
    match (texts.is_empty(), more) {
        (true, _) => Verdict::Same,
        (false, false) => Verdict::Other(texts.join("; ")),
        (false, true) => Verdict::More(texts.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instructions: f64, locked: f64, fs_writes: f64, calls: f64) -> Row {
        Row {
            name: "yield".into(),
            instructions,
            locked,
            fs_writes,
            calls,
        }
    }

    #[test]
    fn what_is_printed_is_read() {
        let all = [row(309.0, 7.0, 2.0, 0.0), row(321.48, 10.06, 1.5, 3.0)];
        assert_eq!(rows(&text(&all)).unwrap(), all);
        assert_eq!(rows("yield 1 2 3\n"), None);
    }

    #[test]
    fn each_operation_is_recorded_once() {
        let recorded: Vec<_> = rows(RECORDED)
            .expect("rows")
            .into_iter()
            .map(|row| row.name)
            .collect();
        let counted: Vec<_> = super::super::OPERATIONS
            .iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(recorded, counted);
        assert_eq!(text(&rows(RECORDED).expect("rows")), RECORDED);
    }

    #[test]
    fn a_little_more_is_said_and_much_more_fails() {
        let recorded = [row(100.0, 5.0, 2.0, 0.0)];
        let verdict = |row| beside(&row, &recorded);
        assert_eq!(verdict(row(100.0, 5.0, 2.0, 0.0)), Verdict::Same);
        for other in [
            row(109.0, 5.0, 2.0, 0.0),
            row(50.0, 2.0, 2.0, 0.0),
            row(100.0, 5.0, 1.0, 0.0),
        ] {
            assert!(matches!(verdict(other), Verdict::Other(_)));
        }
        for more in [
            row(111.0, 5.0, 2.0, 0.0),
            row(100.0, 6.0, 2.0, 0.0),
            row(100.0, 5.0, 3.0, 0.0),
            row(100.0, 5.0, 2.0, 1.0),
        ] {
            assert!(matches!(verdict(more), Verdict::More(_)));
        }
        let unknown = Row {
            name: "other".into(),
            ..row(1.0, 1.0, 1.0, 1.0)
        };
        assert!(matches!(verdict(unknown), Verdict::Other(_)));
    }
}
