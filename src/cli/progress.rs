//! A line on the terminal that says what lockscope does, when it takes longer than a moment.
//!
//! In: the library's log messages. Out: one line on standard error, which the next message replaces and the end removes.
//! Nothing if standard error is no terminal. It measures nothing, and the library does not depend on it.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{LevelFilter, Log, Metadata, Record};
use terminal_size::{Width, terminal_size_of};

use crate::render::escape;

/// Work that ends sooner shows no line.
const A_MOMENT: Duration = Duration::from_millis(500);
/// Between two turns of the wheel.
const TURN: Duration = Duration::from_millis(120);
/// The positions of the wheel.
const WHEEL: [char; 4] = ['|', '/', '-', '\\'];
/// Back to the first column, and everything behind it removed (ECMA-48).
const CLEARED: &str = "\r\u{1b}[K";

/// Do the work, and show how it goes on if standard error is a terminal, unless the user wants quiet.
pub(super) fn unless<T>(quiet: bool, work: impl FnOnce() -> T) -> T {
    let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    if quiet || !io::stderr().is_terminal() || is_dumb {
        return work();
    }
    let columns = terminal_size_of(io::stderr()).map_or(80, |(Width(columns), _)| usize::from(columns));
    shown(io::stderr(), columns, work)
}

fn shown<T>(mut terminal: impl Write + Send, columns: usize, work: impl FnOnce() -> T) -> T {
    // Fails if an earlier call has set it.
    let _ = log::set_logger(&MESSAGES);
    log::set_max_level(LevelFilter::Info);
    let (done, is_done) = channel::<()>();
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            let (started, mut wheel) = (Instant::now(), WHEEL.iter().cycle());
            let mut pause = A_MOMENT;
            while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = TURN;
                let message = MESSAGES.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let sign = wheel.next().unwrap_or(&WHEEL[0]);
                let line = line(*sign, &message, started.elapsed().as_secs(), columns);
                let _ = write!(terminal, "{CLEARED}{line}").and_then(|()| terminal.flush());
            }
            if pause == TURN {
                let _ = write!(terminal, "{CLEARED}").and_then(|()| terminal.flush());
            }
        });
        // Dropped even if the work panics: the line ends then as well.
        let _done = done;
        work()
    });
    log::set_max_level(LevelFilter::Off);
    result
}

/// The line, short enough that it never wraps.
fn line(sign: char, message: &str, seconds: u64, columns: usize) -> String {
    let time = format!("{seconds} s");
    let room = columns.saturating_sub(time.len() + 5);
    let message: String = message.chars().take(room).collect();
    format!("{sign} {message} {time}")
}

/// The latest message of the library.
struct Messages {
    latest: Mutex<String>,
}

static MESSAGES: Messages = Messages { latest: Mutex::new(String::new()) };

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Messages of other crates are for their developers.
        metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = escape(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A terminal that remembers.
    #[derive(Clone, Default)]
    struct Terminal(Arc<Mutex<Vec<u8>>>);

    impl Terminal {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_work_says_what_it_does_and_short_work_nothing() {
        let quiet = Terminal::default();
        assert_eq!(shown(quiet.clone(), 80, || 7), 7);
        assert_eq!(quiet.text(), "");
        let terminal = Terminal::default();
        let began = Instant::now();
        shown(terminal.clone(), 80, || {
            // Other tests beside this one have messages, too, and the latest is shown.
            while !terminal.text().contains("libtorch") && began.elapsed() < Duration::from_secs(20) {
                log::info!("reading `libtorch\u{1b}[2J.so`");
                log::info!(target: "another_crate", "for its developers");
                std::thread::yield_now();
            }
        });
        let text = terminal.text();
        // A message of another test may have had the first turn of the wheel.
        let is_shown = |sign: &char| text.contains(&format!("{sign} reading `libtorch\\u{{1b}}[2J.so` 0 s"));
        assert!(WHEEL.iter().any(is_shown) && text.ends_with(CLEARED), "{text:?}");
        assert!(!text.contains("developers") && !text.replace(CLEARED, "").contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn lines_never_wrap() {
        assert_eq!(line('-', "reading libtorch.so", 12, 20), "- reading lib 12 s");
        assert_eq!(line('-', "reading", 3, 0), "-  3 s");
    }
}
