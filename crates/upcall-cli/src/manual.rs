//! Manual pages and shell completions, both from the one definition of the command line.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use clap::CommandFactory;
use upcall_linux::statistics::ROWS;

use crate::args::Cli;
use crate::refusal::Refusal;
use crate::status::{EXIT_OURS, say};

pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "upcall", &mut script);
    script
}

/// The manual page of `upcall` (without a name) or of one of its commands.
///
/// # Errors
/// There is no such command.
pub fn page(name: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let mut command = Cli::command();
    command.build();
    let command = match name {
        None => command,
        Some(name) => {
            let Some(found) = command.find_subcommand(name) else {
                return Err(unknown(name, &command));
            };
            found.clone().display_name(format!("upcall-{name}"))
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .expect("writing to memory cannot fail");
    if name == Some("run") {
        page.extend(statistics().into_bytes());
    }
    Ok(page)
}

/// Shows a page: on a terminal as man(1) does, which says itself what it cannot; otherwise as it is, in roff. Returns the exit
/// status.
pub fn show(page: &[u8]) -> i32 {
    let reader = std::io::stdout().is_terminal().then(|| {
        Command::new("man")
            .args(["-l", "-"])
            .stdin(Stdio::piped())
            .spawn()
    });
    let Some(Ok(mut reader)) = reader else {
        return say(page);
    };
    // Who leaves the page before its end does not read it all.
    if let Some(mut pipe) = reader.stdin.take() {
        let _ = pipe.write_all(page);
    }
    let status = reader.wait().ok().and_then(|status| status.code());
    status.unwrap_or(EXIT_OURS)
}

/// The section on `--stats`, in roff.
fn statistics() -> String {
    let mut section = String::from(
        ".SH STATISTICS\nWith \\fB\\-\\-stats\\fR a program prints these counters to its standard error when it ends.\n",
    );
    for row in ROWS {
        section += &format!(".TP\n.B {}\n{}\n", row.name, row.meaning);
    }
    section
}

fn unknown(name: &str, command: &clap::Command) -> Refusal {
    let known: Vec<&str> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    Refusal {
        what: format!("there is no manual page for '{name}'"),
        checked: format!("the commands are: {}", known.join(", ")),
        remedy: "upcall man run".into(),
        more: "upcall help",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_exist_for_every_command_and_name_their_flags() {
        let text = |name| String::from_utf8(page(name).expect("a page")).expect("text");
        assert!(text(None).contains(".TH upcall 1"));
        let run = text(Some("run"));
        assert!(run.contains("or\\-native"));
        assert!(ROWS.iter().all(|row| run.contains(row.name)));
        assert!(text(Some("doctor")).contains("json"));
        assert!(page(Some("dance")).is_err());
    }

    #[test]
    fn completions_name_the_commands() {
        let script = completions(clap_complete::Shell::Bash);
        let script = String::from_utf8(script).expect("text");
        assert!(script.contains("doctor"));
    }
}
