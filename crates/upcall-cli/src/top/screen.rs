//! The terminal: how it is taken, and given back whatever happens.
//!
//! 1. Its settings are kept; then it shows another screen, and no key has an effect of its own.
//! 2. They are put back by [`Screen::drop`], by the panic hook, and by the handler of every signal that ends the command.
//!    All do the same ([`give_back`]), which a signal handler may do.

use std::io::{self, IsTerminal, Stdout, stdout};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, enable_raw_mode};

use super::report::Report;
use super::view::View;

/// The settings of the terminal before.
static BEFORE: OnceLock<libc::termios> = OnceLock::new();

/// The cursor is shown, the colours are as before, and so is the screen.
const BACK: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Puts the terminal back. May run in a signal handler.
fn give_back() {
    if let Some(before) = BEFORE.get() {
        // SAFETY: both calls are safe in a signal handler (signal-safety(7)), and read these bytes only.
        unsafe {
            libc::write(libc::STDOUT_FILENO, BACK.as_ptr().cast(), BACK.len());
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, before);
        }
    }
}

extern "C" fn end_by_signal(signal: libc::c_int) {
    give_back();
    // SAFETY: safe in a signal handler; the signal ends the process when this handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// True if there is a terminal that can show more than lines.
pub fn is_there() -> bool {
    let can = std::env::var("TERM").is_ok_and(|name| !name.is_empty() && name != "dumb");
    can && io::stdin().is_terminal() && stdout().is_terminal()
}

/// How many columns the terminal has to which standard output goes, if that is one.
pub fn width() -> Option<usize> {
    let (columns, _) = stdout().is_terminal().then(terminal::size)?.ok()?;
    (columns > 0).then_some(columns.into())
}

/// The terminal while it is ours.
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// # Errors
    /// The terminal does not take it.
    pub fn take() -> io::Result<Self> {
        let mut before = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: fills it in, or fails.
        let before = unsafe {
            if libc::tcgetattr(libc::STDIN_FILENO, before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.assume_init()
        };
        let _ = BEFORE.set(before);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            hook(panic);
        }));
        let end: extern "C" fn(libc::c_int) = end_by_signal;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: a handler that does only what handlers may.
            unsafe { libc::signal(signal, end as libc::sighandler_t) };
        }
        let taken = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        taken.map(Screen).inspect_err(|_| give_back())
    }

    /// Shows reports until a key ends it.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(
        &mut self,
        view: &mut View,
        delay: Duration,
        mut next: impl FnMut() -> Report,
    ) -> io::Result<()> {
        loop {
            let report = next();
            view.meet(&report);
            let until = Instant::now() + delay;
            loop {
                self.0.draw(|frame| view.draw(frame, &report))?;
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || !event::poll(left)? {
                    break;
                }
                let Event::Key(key) = event::read()? else {
                    continue;
                };
                let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') => return Ok(()),
                    KeyCode::Char('c') if has_control => return Ok(()),
                    code => view.press(code, &report),
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}
