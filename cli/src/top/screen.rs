//! The terminal of the live view.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::{cursor, execute, queue, style, terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::paint::{self, Paint, Tone};

/// Between two looks whether a signal has come.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The terminal's other screen, without echo and cursor. Dropping it brings back the shell's, also after a panic.
pub struct Screen {
    paint: Paint,
    /// The number of the signal that was to end the process; 0 before that.
    signal: Arc<AtomicUsize>,
}

impl Screen {
    pub fn enter() -> io::Result<Screen> {
        let signal = Arc::default();
        for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let value = usize::try_from(number).unwrap_or_default();
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
        }
        terminal::enable_raw_mode()?;
        let paint = Paint::of(&io::stdout());
        let screen = Screen { paint, signal };
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Draws the lines over the earlier ones, so that nothing flickers. What is too long is cut.
    pub fn draw(&self, out: &mut impl Write, lines: &[(Tone, String)]) -> io::Result<()> {
        let (width, height) = paint::size();
        for (row, (tone, line)) in (0..).zip(lines.iter().take(height)) {
            let line: String = line.chars().take(width).collect();
            queue!(
                out,
                cursor::MoveTo(0, row),
                style::Print(self.paint.line(*tone, &line)),
                terminal::Clear(terminal::ClearType::UntilNewLine)
            )?;
        }
        if lines.len() < height {
            let end = u16::try_from(lines.len()).unwrap_or(u16::MAX);
            queue!(
                out,
                cursor::MoveTo(0, end),
                terminal::Clear(terminal::ClearType::FromCursorDown)
            )?;
        }
        out.flush()
    }

    /// Waits for a key that the user presses, another size of the terminal, or a signal. `None` when the time is over.
    pub fn next(&self, until: Instant) -> io::Result<Option<Input>> {
        loop {
            let signal = self.signal.load(Ordering::Relaxed);
            if signal != 0 {
                return Ok(Some(Input::Signal(
                    i32::try_from(signal).unwrap_or(SIGTERM),
                )));
            }
            let left = until.saturating_duration_since(Instant::now());
            if !event::poll(left.min(LONGEST_PAUSE))? {
                if left.is_zero() {
                    return Ok(None);
                }
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    return Ok(Some(Input::Key(key)));
                }
                Event::Resize(..) => return Ok(Some(Input::Resized)),
                _ => {}
            }
        }
    }
}

pub enum Input {
    Key(KeyEvent),
    Resized,
    Signal(i32),
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What fails here cannot be told anywhere.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
