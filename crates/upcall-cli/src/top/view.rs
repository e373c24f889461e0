//! How a report looks: the list of programs, and the threads of one. Nothing here knows a terminal.
//!
//! A program gives itself and its threads their names: no control character of them is shown.

use std::collections::HashMap;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::args::show::SortKey;
use crate::status;

use super::report::{Listed, Report, Shown, Use};

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    pub colour: bool,
    /// Beyond ASCII.
    pub utf8: bool,
}

const COLOURS: [Color; 6] = [
    Color::Green,
    Color::Yellow,
    Color::Cyan,
    Color::Magenta,
    Color::Blue,
    Color::Red,
];
/// The most cells for one processor, and the most lines for all.
const CELLS: usize = 8;
const STRIP_LINES: usize = 4;
/// The least width of the last column.
const REST: usize = 8;
/// Keys are the letters before brackets.
const SORTS: &str = "sort: c(pu u(pcalls t(hreads b(locked p(id n(ame r(everse";

struct Column {
    name: &'static str,
    width: usize,
    /// Those with a greater one are left out first where there is no room.
    rank: u8,
    text: fn(&Shown) -> String,
}

const fn column(name: &'static str, width: usize, rank: u8, text: fn(&Shown) -> String) -> Column {
    Column {
        name,
        width,
        rank,
        text,
    }
}

/// The last column is the program's name.
const COLUMNS: [Column; 17] = [
    column("PID", 7, 0, |one| one.pid.to_string()),
    column("USER", 8, 5, |one| one.user.clone()),
    column("VPS", 4, 6, |one| number(one.vps.map(u64::from))),
    column("THR", 6, 0, |one| number(one.threads)),
    column("RUN", 4, 3, |one| number(one.states.map(|s| s.running))),
    column("RDY", 5, 3, |one| {
        number(one.states.map(|s| s.ready + s.preempted))
    }),
    column("PRK", 6, 3, |one| {
        number(one.states.map(|s| s.parked + s.held))
    }),
    column("BLK", 5, 0, |one| number(blocked(one))),
    column("CPU%", 5, 0, |one| format!("{:.0}", one.processors * 100.0)),
    column("UPC/s", 6, 2, |one| {
        rate(one.per_second.map(|r| r.upcalls()))
    }),
    column("BLK/s", 6, 4, |one| rate(one.per_second.map(|r| r.blocked))),
    column("UNB/s", 6, 4, |one| {
        rate(one.per_second.map(|r| r.unblocked))
    }),
    column("ADD/s", 6, 5, |one| rate(one.per_second.map(|r| r.added))),
    column("PRE/s", 6, 6, |one| {
        rate(one.per_second.map(|r| r.preempted))
    }),
    column("TKN/s", 6, 7, |one| rate(one.per_second.map(|r| r.taken))),
    column("SLC/s", 6, 7, |one| {
        rate(one.per_second.map(|r| r.slices_ended))
    }),
    column("TURN", 7, 8, |one| one.turn.unwrap_or("-").into()),
];

/// By states if they are known, and else by the counters.
fn blocked(one: &Shown) -> Option<u64> {
    one.states.map(|states| states.blocked).or(one.blocked)
}

fn number(number: Option<u64>) -> String {
    match number {
        None => "-".into(),
        Some(number @ ..=99_999) => number.to_string(),
        Some(number) => short(number as f64),
    }
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        Some(rate) if rate < 99_999.5 => format!("{rate:.0}"),
        Some(rate) => short(rate),
    }
}

fn short(mut number: f64) -> String {
    for unit in ["", "k", "M", "G", "T", "P"] {
        if number < 1000.0 {
            return format!("{number:.0}{unit}");
        }
        number /= 1000.0;
    }
    format!("{number:.0}E")
}

/// The columns for which there is room.
fn fitting(width: usize) -> Vec<&'static Column> {
    let mut ranks: Vec<u8> = COLUMNS.iter().map(|column| column.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let needs = |rank: u8| -> usize {
        let those = COLUMNS.iter().filter(|column| column.rank <= rank);
        those.map(|column| column.width + 1).sum()
    };
    let most = ranks.into_iter().rfind(|&rank| needs(rank) + REST <= width);
    let most = most.unwrap_or(0);
    COLUMNS
        .iter()
        .filter(|column| column.rank <= most)
        .collect()
}

/// A row of the table, without the program's name.
fn row(columns: &[&Column], text: impl Fn(&Column) -> String) -> String {
    let mut row = String::new();
    for column in columns {
        let cell: String = text(column).chars().take(column.width).collect();
        row += &match column.name {
            "USER" | "TURN" => format!("{cell:<width$} ", width = column.width),
            _ => format!("{cell:>width$} ", width = column.width),
        };
    }
    row
}

/// The table as text: with the columns for which a terminal has room, or all of them and nothing cut.
pub fn table(report: &Report, key: SortKey, means: Means, terminal: Option<usize>) -> String {
    let width = terminal.unwrap_or(usize::MAX);
    let columns = fitting(width);
    let mut text = String::new();
    let mut say = |line: String| {
        text += cut(&line, width).trim_end();
        text.push('\n');
    };
    say(row(&columns, |column| column.name.into()) + "PROGRAM");
    for one in sorted(report, key, false) {
        let cells = row(&columns, |column| plain(&(column.text)(one), means));
        say(cells + &plain(&one.program, means));
        for thread in one.list.iter().flatten() {
            let line = thread_row(thread, names(width), usize::MAX, means);
            say(format!("    {line}"));
        }
    }
    text
}

/// What there is no room for is left out whole.
fn hints(all: &[&str], width: usize) -> String {
    let mut text = String::new();
    for hint in all {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.len() + gap.len() + hint.len() <= width {
            text = text + gap + hint;
        }
    }
    text
}

/// The width of a thread's name.
fn names(width: usize) -> usize {
    if width < 60 { 10 } else { 15 }
}

fn plain(text: &str, means: Means) -> String {
    status::plain(text)
        .chars()
        .map(|c| if means.utf8 || c.is_ascii() { c } else { '?' })
        .collect()
}

/// Cut at this many columns of the terminal, which a character may take two of.
fn cut(text: &str, width: usize) -> String {
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if Span::raw(cut.as_str()).width() > width {
            cut.pop();
            break;
        }
    }
    cut
}

fn padded(text: &str, width: usize) -> String {
    let mut text = cut(text, width);
    let used = Span::raw(text.as_str()).width();
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    text
}

fn sorted(report: &Report, key: SortKey, backwards: bool) -> Vec<&Shown> {
    let mut all: Vec<&Shown> = report.programs.iter().collect();
    let upcalls = |one: &Shown| one.per_second.map_or(0.0, |rates| rates.upcalls());
    all.sort_by(|a, b| {
        let order = match key {
            SortKey::Cpu => b.processors.total_cmp(&a.processors),
            SortKey::Pid => a.pid.cmp(&b.pid),
            SortKey::Name => a.program.cmp(&b.program),
            SortKey::Threads => b.threads.cmp(&a.threads),
            SortKey::Blocked => blocked(b).cmp(&blocked(a)),
            SortKey::Upcalls => upcalls(b).total_cmp(&upcalls(a)),
        };
        let order = if backwards { order.reverse() } else { order };
        order.then(a.pid.cmp(&b.pid))
    });
    all
}

fn thread_head(names: usize) -> String {
    format!(
        "{:>5} {:<names$} {:<9} {:>3} WAITS FOR",
        "#", "NAME", "STATE", "VP"
    )
}

fn thread_row(thread: &Listed, names: usize, width: usize, means: Means) -> String {
    let vp = thread.vp.map_or(String::new(), |vp| vp.to_string());
    let row = format!(
        "{:>5} {} {:<9} {vp:>3} {}",
        thread.number,
        padded(&plain(&thread.name, means), names),
        thread.state,
        plain(thread.waits_for.as_deref().unwrap_or(""), means)
    );
    if width == usize::MAX {
        row
    } else {
        cut(&row, width)
    }
}

/// What is looked at, and how.
pub struct View {
    means: Means,
    key: SortKey,
    backwards: bool,
    /// Which program is selected, or shown.
    selected: Option<i32>,
    shows_threads: bool,
    by_state: bool,
    /// The first line that is shown.
    top: usize,
    /// By process: its letter and colour.
    marks: HashMap<i32, usize>,
}

impl View {
    pub fn new(means: Means, key: SortKey) -> Self {
        View {
            means,
            key,
            backwards: false,
            selected: None,
            shows_threads: false,
            by_state: false,
            top: 0,
            marks: HashMap::new(),
        }
    }

    /// Gives each program its letter, which it keeps.
    pub fn meet(&mut self, report: &Report) {
        let there = |pid: &i32| report.programs.iter().any(|one| one.pid == *pid);
        self.marks.retain(|pid, _| there(pid));
        for one in &report.programs {
            if !self.marks.contains_key(&one.pid) {
                let is_free = |mark: &usize| !self.marks.values().any(|used| used == mark);
                let mark = (0..).find(is_free).unwrap_or(0);
                self.marks.insert(one.pid, mark);
            }
        }
        let gone = !self.shows_threads && self.selected.is_some_and(|pid| !there(&pid));
        if gone || self.selected.is_none() {
            self.selected = sorted(report, self.key, self.backwards)
                .first()
                .map(|first| first.pid);
        }
    }

    pub fn press(&mut self, key: KeyCode, report: &Report) {
        if self.shows_threads {
            match key {
                KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Enter => {
                    self.shows_threads = false;
                    self.top = 0;
                    self.meet(report);
                }
                KeyCode::Char('s') => self.by_state = !self.by_state,
                KeyCode::Down => self.top += 1,
                KeyCode::Up => self.top = self.top.saturating_sub(1),
                KeyCode::PageDown => self.top += 10,
                KeyCode::PageUp => self.top = self.top.saturating_sub(10),
                KeyCode::Home => self.top = 0,
                _ => {}
            }
            return;
        }
        let of_key = match key {
            KeyCode::Char('c') => Some(SortKey::Cpu),
            KeyCode::Char('p') => Some(SortKey::Pid),
            KeyCode::Char('n') => Some(SortKey::Name),
            KeyCode::Char('t') => Some(SortKey::Threads),
            KeyCode::Char('b') => Some(SortKey::Blocked),
            KeyCode::Char('u') => Some(SortKey::Upcalls),
            _ => None,
        };
        if let Some(of_key) = of_key {
            self.key = of_key;
        }
        match key {
            KeyCode::Char('r') => self.backwards = !self.backwards,
            KeyCode::Enter | KeyCode::Right if self.selected.is_some() => {
                self.shows_threads = true;
                self.top = 0;
            }
            KeyCode::Down => self.select(report, 1),
            KeyCode::Up => self.select(report, -1),
            KeyCode::PageDown => self.select(report, 10),
            KeyCode::PageUp => self.select(report, -10),
            _ => {}
        }
    }

    fn select(&mut self, report: &Report, by: isize) {
        let all = sorted(report, self.key, self.backwards);
        let at = all.iter().position(|one| Some(one.pid) == self.selected);
        let at = at.unwrap_or(0).saturating_add_signed(by);
        self.selected = all
            .get(at.min(all.len().saturating_sub(1)))
            .map(|one| one.pid);
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>, report: &Report) {
        let area = frame.area();
        let width = usize::from(area.width);
        let mut lines = vec![self.head(report, width)];
        lines.extend(self.strip(report, width));
        let foot: &[&str] = if self.shows_threads {
            &["q quit", "Esc back", "s by state", "Up Down scroll"]
        } else {
            &["q quit", "Enter threads", SORTS, "Up Down select"]
        };
        let room = usize::from(area.height).saturating_sub(lines.len() + 1);
        if self.shows_threads {
            lines.extend(self.threads(report, width, room));
        } else {
            lines.extend(self.programs(report, width, room));
        }
        lines.truncate(usize::from(area.height).saturating_sub(1));
        frame.render_widget(Paragraph::new(lines), area);
        let last = Rect {
            y: area.y + area.height.saturating_sub(1),
            height: area.height.min(1),
            ..area
        };
        frame.render_widget(Paragraph::new(hints(foot, width)), last);
    }

    fn head(&self, report: &Report, width: usize) -> Line<'static> {
        let threads: u64 = report.programs.iter().filter_map(|one| one.threads).sum();
        let text = format!(
            "upcall top: programs {}, threads {threads}, daemon {}",
            report.programs.len(),
            report.daemon
        );
        Line::styled(cut(&text, width), Modifier::BOLD)
    }

    /// The processors: each with as many cells, by who used it.
    fn strip(&self, report: &Report, width: usize) -> Vec<Line<'static>> {
        let count = report.processors.len();
        let per_line = |cells: usize| match cells {
            1 => width.max(1),
            _ => (width + 1) / (cells + 1),
        };
        let fits = |cells: &usize| per_line(*cells) * STRIP_LINES >= count && per_line(*cells) > 0;
        let cells = [CELLS, 4, 2].into_iter().find(fits).unwrap_or(1);
        let mut lines = Vec::new();
        for some in report.processors.chunks(per_line(cells)).take(STRIP_LINES) {
            let mut spans = Vec::new();
            for (at, processor) in some.iter().enumerate() {
                if at > 0 && cells > 1 {
                    spans.push(Span::raw(" "));
                }
                spans.extend(self.cells(processor, cells));
            }
            lines.push(Line::from(spans));
        }
        lines
    }

    fn cells(&self, processor: &Use, cells: usize) -> Vec<Span<'static>> {
        let (others, idle) = if self.means.utf8 {
            ('░', '·')
        } else {
            ('#', '.')
        };
        let mut parts: Vec<(char, Style, f64)> = processor
            .programs
            .iter()
            .map(|one| {
                let (letter, style) = self.mark(one.pid);
                (letter, style, one.part)
            })
            .collect();
        parts.push((others, Style::new(), processor.others));
        parts.push((idle, Style::new(), processor.idle));
        let mut spans = Vec::new();
        let (mut sum, mut used) = (0.0, 0);
        let last = parts.len() - 1;
        for (at, (letter, style, part)) in parts.into_iter().enumerate() {
            sum += part;
            let end = match at == last {
                true => cells,
                false => ((sum * cells as f64).round() as usize).clamp(used, cells),
            };
            spans.push(Span::styled(letter.to_string().repeat(end - used), style));
            used = end;
        }
        spans
    }

    fn mark(&self, pid: i32) -> (char, Style) {
        let mark = self.marks.get(&pid).copied().unwrap_or(0);
        let letter = char::from(b'a' + (mark % 26) as u8);
        let style = match self.means.colour {
            true => Style::new()
                .fg(Color::Black)
                .bg(COLOURS[mark % COLOURS.len()]),
            false => Style::new(),
        };
        (letter, style)
    }

    fn programs(&mut self, report: &Report, width: usize, room: usize) -> Vec<Line<'static>> {
        // A letter and a blank come first.
        let columns = fitting(width.saturating_sub(2));
        let head = format!("  {}PROGRAM", row(&columns, |column| column.name.into()));
        let mut lines = vec![Line::styled(cut(&head, width), Modifier::UNDERLINED)];
        let all = sorted(report, self.key, self.backwards);
        let notes = self.notes(report, &all, width);
        let room = room.saturating_sub(1 + notes.len()).max(1);
        let at = all.iter().position(|one| Some(one.pid) == self.selected);
        self.top = self.top.min(all.len().saturating_sub(room));
        if let Some(at) = at {
            self.top = self.top.clamp((at + 1).saturating_sub(room), at);
        }
        for one in all.iter().skip(self.top).take(room) {
            let (letter, style) = self.mark(one.pid);
            let text = row(&columns, |column| plain(&(column.text)(one), self.means));
            let text = format!("{text}{}", plain(&one.program, self.means));
            let line = Line::from(vec![
                Span::styled(letter.to_string(), style),
                Span::raw(" "),
                Span::raw(padded(&text, width.saturating_sub(2))),
            ]);
            lines.push(match Some(one.pid) == self.selected {
                true => line.patch_style(Modifier::REVERSED),
                false => line,
            });
        }
        lines.extend(notes);
        lines
    }

    /// What cannot be shown, and why.
    fn notes(&self, report: &Report, all: &[&Shown], width: usize) -> Vec<Line<'static>> {
        let mut notes = Vec::new();
        if let Some(trouble) = &report.trouble {
            notes.push(format!("no counters of any program: {trouble}"));
        }
        if all.is_empty() {
            notes.push(super::NONE.into());
        }
        if let Some(one) = all.iter().find(|one| Some(one.pid) == self.selected) {
            let unseen = [("counters", &one.no_counters), ("states", &one.no_states)];
            for (what, why) in unseen {
                if let Some(why) = why {
                    notes.push(format!("{}: no {what}: {why}", one.pid));
                }
            }
        }
        let mut lines = Vec::new();
        for note in notes {
            lines.extend(wrapped(&plain(&note, self.means), width, 3));
        }
        lines
    }

    fn threads(&mut self, report: &Report, width: usize, room: usize) -> Vec<Line<'static>> {
        let pid = self.selected.unwrap_or_default();
        let Some(one) = report.programs.iter().find(|one| one.pid == pid) else {
            return vec![Line::raw(cut(&format!("process {pid} has ended"), width))];
        };
        let title = format!("{pid} {}", plain(&one.program, self.means));
        let mut lines = vec![Line::styled(cut(&title, width), Modifier::BOLD)];
        let Some(list) = &one.list else {
            let why = one
                .no_states
                .as_deref()
                .unwrap_or("they were not looked at");
            let text = plain(&format!("no threads are shown: {why}"), self.means);
            lines.extend(wrapped(&text, width, room.saturating_sub(1)));
            return lines;
        };
        let names = names(width);
        lines.push(Line::styled(
            cut(&thread_head(names), width),
            Modifier::UNDERLINED,
        ));
        let mut list: Vec<&Listed> = list.iter().collect();
        if self.by_state {
            list.sort_by_key(|thread| (thread.state, thread.number));
        }
        let room = room.saturating_sub(2).max(1);
        self.top = self.top.min(list.len().saturating_sub(room));
        for thread in list.into_iter().skip(self.top).take(room) {
            let style = match (self.means.colour, thread.state) {
                (true, "running") => Style::new().fg(Color::Green),
                (true, "ready" | "preempted") => Style::new().fg(Color::Yellow),
                (true, "blocked") => Style::new().fg(Color::Red),
                _ => Style::new(),
            };
            lines.push(Line::styled(
                thread_row(thread, names, width, self.means),
                style,
            ));
        }
        lines
    }
}

/// The text in some lines at most.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(cut(word, width)),
        }
    }
    lines.truncate(most);
    lines.into_iter().map(Line::raw).collect()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
