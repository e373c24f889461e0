use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::CommandFactory;
use proptest::prelude::*;
use upcall_linux::VpRange;

use super::*;

fn run_args(words: &[&str]) -> RunArgs {
    match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(Command::Run(args)) => args,
        Ok(_) => panic!("another command"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn what_follows_the_program_belongs_to_it() {
    let args = run_args(&[
        "upcall", "run", "-p", "2", "xz", "-p", "--stats", "--", "-k",
    ]);
    assert_eq!(args.command, ["xz", "-p", "--stats", "--", "-k"]);
    assert!(!args.stats);
    let args = run_args(&["upcall", "run", "--stats", "--", "-odd", "--or-native"]);
    assert_eq!(args.command, ["-odd", "--or-native"]);
    assert!(args.stats && !args.or_native);
}

#[test]
fn a_flag_that_does_not_exist_is_not_a_program() {
    assert!(Cli::try_parse_from(["upcall", "run", "--bogus", "xz"]).is_err());
    assert!(Cli::try_parse_from(["upcall", "run"]).is_err());
    assert!(Cli::try_parse_from(["upcall", "run", "--backend", "bogus", "xz"]).is_err());
}

#[test]
fn quiet_needs_a_feature() {
    assert!(Cli::try_parse_from(["upcall", "doctor", "-q"]).is_err());
    assert!(Cli::try_parse_from(["upcall", "doctor", "glibc", "-q"]).is_ok());
}

/// Words that mean something, words that nearly do, and any bytes that an argument can hold.
fn word() -> impl Strategy<Value = OsString> {
    let known = prop::sample::select(vec![
        "run",
        "doctor",
        "bench",
        "man",
        "completions",
        "-p",
        "--vps",
        "--vps=",
        "--backend",
        "--backend=auto",
        "--stats",
        "--stats=1",
        "--no-children",
        "--or-native",
        "--",
        "-",
        "",
        "-h",
        "--help",
        "-V",
        "--json",
        "-q",
        "1..",
        "..",
        "..1",
        "0",
        "1..1024",
        "2..1",
        "4294967296",
        "99999999999999999999999999",
        "-1",
        "+1",
        " 1",
        "1 ",
        "\u{661}",
        "xz",
        "--vps=18446744073709551615",
        "-p2",
        "-pp",
        "--runtime",
        "upcall,,nptl",
        "--seconds",
    ]);
    prop_oneof![
        4 => known.prop_map(OsString::from),
        1 => prop::collection::vec(1u8..=255, 0..12).prop_map(OsString::from_vec),
        1 => "-{0,2}[a-z=.0-9]{0,9}".prop_map(OsString::from),
    ]
}

proptest! {
    #[test]
    fn what_is_plain_means_the_same_to_the_definition(
        words in prop::collection::vec(word(), 0..6), runs in any::<bool>(),
    ) {
        let first = ["upcall", "run"].into_iter().take(1 + usize::from(runs));
        let line: Vec<OsString> = first.map(OsString::from).chain(words).collect();
        if let Some(plain) = RunArgs::plain(line.iter().cloned()) {
            let Ok(Cli { command: Command::Run(args) }) = Cli::try_parse_from(&line) else {
                panic!("{line:?} is not a run");
            };
            prop_assert_eq!(args.command, plain.command);
            prop_assert!(args.vps.is_none() && args.backend.is_none() && args.policy.is_none());
            prop_assert!(!args.stats && !args.no_children && !args.or_native);
        }
        #[cfg(target_arch = "x86_64")]
        {
            let word = |at: usize| line.get(at).map(|word| word.as_encoded_bytes());
            let command = crate::front::serve::plain(word).map(|at| line[at..].to_vec());
            let plain = RunArgs::plain(line.iter().cloned()).map(|plain| plain.command);
            prop_assert_eq!(command, plain);
        }
    }

    /// Whatever is said, there is an answer, and what goes to the program is the end of it,
    /// byte for byte.
    #[test]
    fn any_command_line_is_taken_or_refused(words in prop::collection::vec(word(), 0..9)) {
        let line: Vec<OsString> = [OsString::from("upcall")].into_iter().chain(words).collect();
        match Cli::try_parse_from(&line) {
            Ok(Cli { command: Command::Run(args) }) => {
                prop_assert!(!args.command.is_empty());
                prop_assert!(line.ends_with(&args.command));
            }
            Ok(_) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_number_of_virtual_processors_is_between_one_and_the_most(
        text in prop_oneof!["[0-9]{0,30}(\\.\\.)?[0-9]{0,30}", any::<String>()],
        allowed in any::<usize>(),
    ) {
        if let Ok(range) = text.parse::<VpRange>() {
            prop_assert!((1..=1024).contains(&range.resolve(allowed)));
        }
    }
}
