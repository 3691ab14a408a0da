//! The terminal of the live view.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::{cursor, execute, queue, style, terminal};

use crate::paint::{Paint, Tone};

/// The terminal's other screen, without echo and cursor. Dropping it brings back the shell's, also after a panic.
pub struct Screen {
    paint: Paint,
}

impl Screen {
    pub fn enter() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let paint = Paint::of(&io::stdout());
        let screen = Screen { paint };
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    pub fn height(&self) -> usize {
        terminal::size().map_or(24, |size| usize::from(size.1))
    }

    /// Draws the lines over the earlier ones, so that nothing flickers. What is too long is cut.
    pub fn draw(&self, out: &mut impl Write, lines: &[(Tone, String)]) -> io::Result<()> {
        let width = terminal::size().map_or(80, |size| usize::from(size.0));
        for (row, (tone, line)) in (0..).zip(lines.iter().take(self.height())) {
            let line: String = line.chars().take(width).collect();
            queue!(
                out,
                cursor::MoveTo(0, row),
                style::Print(self.paint.line(*tone, &line)),
                terminal::Clear(terminal::ClearType::UntilNewLine)
            )?;
        }
        if lines.len() < self.height() {
            let end = u16::try_from(lines.len()).unwrap_or(u16::MAX);
            queue!(
                out,
                cursor::MoveTo(0, end),
                terminal::Clear(terminal::ClearType::FromCursorDown)
            )?;
        }
        out.flush()
    }

    /// Waits for a key that the user presses, or another size of the terminal. `None` when the time is over.
    pub fn next(&self, until: Instant) -> io::Result<Option<Input>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !event::poll(left.min(Duration::from_secs(3600)))? {
                return Ok(None);
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
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What fails here cannot be told anywhere.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
