//! What a terminal of 40 and of 100 columns shows, with and without colours and UTF-8.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::super::report::{Part, Rates, States};
use super::*;
use crate::live::Counters;

const PLAIN: Means = Means {
    colour: false,
    utf8: false,
};
const RICH: Means = Means {
    colour: true,
    utf8: true,
};

fn shown(pid: i32, program: &str, processors: f64) -> Shown {
    Shown {
        pid,
        program: program.into(),
        user: "somebody".into(),
        turn: None,
        vps: Some(2),
        threads: Some(12),
        blocked: Some(3),
        states: Some(States {
            running: 1,
            ready: 2,
            parked: 4,
            blocked: 5,
            ..States::default()
        }),
        processors,
        per_second: Some(Rates {
            blocked: 1234.0,
            unblocked: 0.5,
            ..Rates::default()
        }),
        counters: Some(Counters::default()),
        no_counters: None,
        no_states: None,
        list: Some(vec![
            listed(1, "main", "parked", Some("its deadline")),
            listed(2, "n\u{e4}me\u{1b}[2J", "running", None),
        ]),
    }
}

fn listed(number: u64, name: &str, state: &'static str, waits_for: Option<&str>) -> Listed {
    Listed {
        number,
        id: 7,
        name: name.into(),
        state,
        vp: (state == "running").then_some(1),
        tid: None,
        waits_for: waits_for.map(Into::into),
    }
}

fn report(programs: Vec<Shown>, processors: u32) -> Report {
    let parts = programs.iter().map(|one| one.pid);
    let parts: Vec<(i32, f64)> = parts.zip([0.5, 0.25]).collect();
    Report {
        v: 1,
        interval_ms: 1000,
        daemon: "no",
        trouble: None,
        processors: (0..processors)
            .map(|number| Use {
                number,
                idle: 0.125,
                others: 0.875 - parts.iter().map(|part| part.1).sum::<f64>(),
                programs: parts
                    .iter()
                    .map(|&(pid, part)| Part { pid, part })
                    .collect(),
            })
            .collect(),
        programs,
    }
}

fn two() -> Report {
    report(
        vec![shown(70, "busy", 1.5), shown(7, "b\u{1b}r\u{e9}ad", 0.01)],
        2,
    )
}

/// The lines of a terminal of this size.
fn draw(view: &mut View, report: &Report, width: u16, height: u16) -> (Vec<String>, Buffer) {
    view.meet(report);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a backend");
    terminal
        .draw(|frame| view.draw(frame, report))
        .expect("it draws");
    let buffer = terminal.backend().buffer().clone();
    let line = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    let lines = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    (lines, buffer)
}

fn has_colour(buffer: &Buffer) -> bool {
    let is_plain = |color: Color| color == Color::Reset;
    !buffer
        .content
        .iter()
        .all(|cell| is_plain(cell.fg) && is_plain(cell.bg))
}

#[test]
fn forty_columns_show_what_matters_in_ascii() {
    let (lines, buffer) = draw(&mut View::new(PLAIN, SortKey::Cpu), &two(), 40, 8);
    let expected = [
        "upcall top: programs 2, threads 24, daem",
        "aaaabb#. aaaabb#.",
        "      PID    THR   BLK  CPU% PROGRAM",
        "a      70     12     5   150 busy",
        "b       7     12     5     1 br?ad",
        "",
        "",
        "q quit  Enter threads  Up Down select",
    ];
    assert_eq!(lines, expected);
    assert!(!has_colour(&buffer));
}

#[test]
fn a_hundred_columns_show_states_and_rates_in_colour() {
    let (lines, buffer) = draw(&mut View::new(RICH, SortKey::Cpu), &two(), 100, 8);
    assert_eq!(lines[1], "aaaabb░· aaaabb░·");
    for name in [
        "USER", "RUN", "RDY", "PRK", "UPC/s", "BLK/s", "UNB/s", "ADD/s",
    ] {
        assert!(lines[2].contains(name), "{name}: {}", lines[2]);
    }
    assert!(
        lines[3].ends_with("busy") && lines[4].ends_with("bréad"),
        "{lines:?}"
    );
    assert!(
        lines[3].contains(" 1234 ") && lines[3].contains(" 0.5 "),
        "{}",
        lines[3]
    );
    assert_eq!(buffer[(0, 1)].bg, COLOURS[0]);
    assert_eq!(buffer[(5, 1)].bg, COLOURS[1]);
    // The selected one.
    assert!(buffer[(10, 3)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [1, 2, 10, 39, 40, 41, 60, 80, 100, 250] {
        for height in [1, 2, 3, 5, 30] {
            for count in [0, 1, 2, 64, 1000] {
                let mut view = View::new(RICH, SortKey::Upcalls);
                let report = report(vec![shown(1, "\u{4e16}\u{754c}", 1.0)], count);
                draw(&mut view, &report, width, height);
                view.press(KeyCode::Enter, &report);
                draw(&mut view, &report, width, height);
            }
        }
    }
    for width in 40..250 {
        let columns = fitting(width - 2);
        let used: usize = columns.iter().map(|column| column.width + 1).sum();
        assert!(used + REST <= width - 2, "{width}");
    }
}

/// What keys do is said whole, and in 80 columns all of it but the arrows.
#[test]
fn hints_are_said_whole() {
    let mut view = View::new(PLAIN, SortKey::Cpu);
    for width in 1..130 {
        let (lines, _) = draw(&mut view, &two(), width, 5);
        let of = ["q quit", "Enter threads", SORTS, "Up Down select"];
        assert!(
            lines[4]
                .split("  ")
                .all(|one| one.is_empty() || of.contains(&one)),
            "{lines:?}"
        );
        assert_eq!(lines[4].contains(SORTS), width >= 80, "{lines:?}");
    }
}

#[test]
fn a_table_fits_the_terminal_and_is_whole_where_there_is_none() {
    let of = |terminal| table(&two(), SortKey::Cpu, PLAIN, terminal);
    let lines: Vec<String> = of(Some(40)).lines().map(Into::into).collect();
    let expected = [
        "    PID    THR   BLK  CPU% PROGRAM",
        "     70     12     5   150 busy",
        "        1 main       parked        its d",
        "        2 n?me[2J    running     1",
        "      7     12     5     1 br?ad",
        "        1 main       parked        its d",
        "        2 n?me[2J    running     1",
    ];
    assert_eq!(lines, expected);
    for column in COLUMNS {
        assert!(of(None).contains(column.name), "{}", column.name);
    }
    for width in 1..200 {
        assert!(
            of(Some(width)).lines().all(|line| line.len() <= width),
            "{width}"
        );
    }
}

#[test]
fn keys_sort_select_and_show_threads() {
    let (mut view, report) = (View::new(PLAIN, SortKey::Cpu), two());
    let first = |view: &mut View, key| {
        view.press(key, &report);
        draw(view, &report, 100, 9).0
    };
    let lines = first(&mut view, KeyCode::Char('p'));
    assert!(lines[3].starts_with("b       7 "), "{lines:?}");
    let lines = first(&mut view, KeyCode::Char('r'));
    assert!(lines[3].starts_with("a      70 "), "{lines:?}");
    first(&mut view, KeyCode::Up);
    assert_eq!(view.selected, Some(70));
    first(&mut view, KeyCode::Down);
    assert_eq!(view.selected, Some(7));
    first(&mut view, KeyCode::PageDown);
    assert_eq!(view.selected, Some(7));
    let lines = first(&mut view, KeyCode::Enter);
    assert_eq!(lines[2], "7 br?ad");
    assert_eq!(lines[3], "    # NAME            STATE      VP WAITS FOR");
    assert_eq!(lines[4], "    1 main            parked        its deadline");
    assert_eq!(lines[5], "    2 n?me[2J         running     1");
    let lines = first(&mut view, KeyCode::Esc);
    assert!(lines[2].contains("PROGRAM"), "{lines:?}");
}

#[test]
fn a_program_that_ends_while_its_threads_are_shown_is_said_to_have_ended() {
    let mut view = View::new(PLAIN, SortKey::Cpu);
    view.meet(&two());
    view.press(KeyCode::Enter, &two());
    let others = report(vec![shown(7, "left", 0.0)], 2);
    let (lines, _) = draw(&mut view, &others, 40, 6);
    assert_eq!(lines[2], "process 70 has ended");
    view.press(KeyCode::Esc, &others);
    let (lines, _) = draw(&mut view, &others, 40, 6);
    assert!(lines[3].ends_with("left"), "{lines:?}");
}

#[test]
fn what_cannot_be_seen_is_said() {
    let mut one = shown(70, "other", 0.0);
    one.counters = None;
    one.per_second = None;
    one.states = None;
    one.blocked = None;
    one.list = None;
    one.no_counters = Some("its library is of another version".into());
    one.no_states = Some("Operation not permitted: try sudo".into());
    let mut report = report(vec![one], 2);
    report.trouble = Some("no list".into());
    let mut view = View::new(PLAIN, SortKey::Cpu);
    let (lines, _) = draw(&mut view, &report, 40, 12);
    let text = lines.join(" ");
    for part in ["no list", "of another version", "not permitted"] {
        assert!(text.contains(part), "{part}: {lines:#?}");
    }
    assert!(lines[3].contains(" - "), "{lines:#?}");
    view.press(KeyCode::Enter, &report);
    let (lines, _) = draw(&mut view, &report, 40, 12);
    assert!(lines.join(" ").contains("try sudo"), "{lines:#?}");
    let empty = super::super::report::Report {
        programs: Vec::new(),
        ..two()
    };
    let (lines, _) = draw(&mut View::new(PLAIN, SortKey::Cpu), &empty, 80, 6);
    assert!(
        lines.join(" ").contains("no program of this user"),
        "{lines:#?}"
    );
}

#[test]
fn great_numbers_are_short() {
    assert_eq!(number(Some(99_999)), "99999");
    assert_eq!(number(Some(u64::MAX)), "18E");
    assert_eq!(
        rate(Some(f64::MAX)).len().min(400),
        rate(Some(f64::MAX)).len()
    );
    assert_eq!(rate(Some(2_500_000.0)), "2M");
    assert_eq!(rate(None), "-");
}
