//! What is being done, on a terminal, where it takes longer than a moment.
//!
//! In: the library's log messages. Out: one line on standard error that is replaced by the next and gone at the end; nothing
//! where standard error is no terminal. It measures nothing, and the library does not know of it.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use log::{LevelFilter, Log, Metadata, Record};

use crate::render::escape;

/// Whoever waits less than this does not ask what is being done.
const A_MOMENT: Duration = Duration::from_millis(500);
/// Between two turns of the wheel, which shows that it goes on.
const TURN: Duration = Duration::from_millis(120);

/// Do it, and show how it goes on if standard error is a terminal, unless the user wants quiet.
pub(super) fn unless<T>(quiet: bool, work: impl FnOnce() -> T) -> T {
    let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    if quiet || !io::stderr().is_terminal() || is_dumb {
        return work();
    }
    shown(ProgressDrawTarget::stderr(), work)
}

fn shown<T>(target: ProgressDrawTarget, work: impl FnOnce() -> T) -> T {
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    // The template is a constant.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        line.set_style(style);
    }
    MESSAGES.line.lock().unwrap_or_else(PoisonError::into_inner).replace(line.clone());
    // Only the first of a process is taken.
    let _ = log::set_logger(&MESSAGES);
    log::set_max_level(LevelFilter::Info);
    let (done, is_done) = channel::<()>();
    let shown = line.clone();
    let later = std::thread::spawn(move || {
        if is_done.recv_timeout(A_MOMENT) == Err(RecvTimeoutError::Timeout) {
            shown.set_draw_target(target);
            shown.enable_steady_tick(TURN);
        }
    });
    let result = work();
    drop(done);
    let _ = later.join();
    line.finish_and_clear();
    log::set_max_level(LevelFilter::Off);
    result
}

/// The line of the look that goes on.
struct Messages {
    line: Mutex<Option<ProgressBar>>,
}

static MESSAGES: Messages = Messages { line: Mutex::new(None) };

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Other crates log for their own developers.
        metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata())
            && let Some(line) = &*self.line.lock().unwrap_or_else(PoisonError::into_inner)
        {
            line.set_message(escape(&record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::sync::Arc;
    use std::time::Instant;

    /// A terminal that remembers.
    #[derive(Debug, Clone, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write_str("<cleared>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_work_says_what_it_does_and_short_work_nothing() {
        let quiet = Terminal::default();
        assert_eq!(shown(ProgressDrawTarget::term_like(Box::new(quiet.clone())), || 7), 7);
        assert_eq!(quiet.text(), "");
        let terminal = Terminal::default();
        let watched = terminal.clone();
        let began = Instant::now();
        shown(ProgressDrawTarget::term_like(Box::new(terminal.clone())), || {
            log::info!("reading `libtorch\u{1b}[2J.so`");
            log::info!(target: "another_crate", "for its developers");
            while !watched.text().contains("reading") && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
        });
        let text = terminal.text();
        assert!(text.contains("reading `libtorch\\u{1b}[2J.so`") && text.ends_with("<cleared>"), "{text:?}");
        assert!(!text.contains("developers") && !text.contains('\u{1b}'), "{text:?}");
    }
}
