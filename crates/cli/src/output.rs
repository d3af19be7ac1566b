//! The output of commands: text or JSON on standard output, progress and errors on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::problem::remedy;

/// The output of one command.
pub(crate) struct Output {
    json: bool,
    /// Nothing but errors is said.
    is_silent: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        Output { json, is_silent: false }
    }

    /// Says errors only, as a helper of mount(8) does.
    pub(crate) fn silent() -> Output {
        Output { json: false, is_silent: true }
    }

    /// Whether the answer is one JSON document.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the command's answer: a JSON document, or the same as text.
    pub(crate) fn answer(&self, document: &Value, words: impl FnOnce() -> String) {
        self.answer_by(|| document.clone(), words);
    }

    /// The same for a long document, which is made only if needed.
    pub(crate) fn answer_by(&self, document: impl FnOnce() -> Value, words: impl FnOnce() -> String) {
        if self.is_silent {
            return;
        }
        let text = if self.json {
            serde_json::to_string_pretty(&document()).expect("a JSON value can always be written")
        } else {
            words()
        };
        // It is not an error if the reader has closed the pipe (`| head`).
        let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    }

    /// Prints a line while a long command runs; it is not part of a JSON answer.
    pub(crate) fn say(&self, line: &str) {
        if self.json {
            let _ = writeln!(std::io::stderr(), "{line}");
        } else if !self.is_silent {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    /// Prints an error: what, where, what to do.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let what = format!("{error:#}");
        if self.json {
            let document = json!({ "error": what, "try": remedy(error) });
            let _ = writeln!(std::io::stdout(), "{document:#}");
        }
        let _ = writeln!(std::io::stderr(), "error: {what}");
        if let Some(remedy) = remedy(error) {
            let _ = writeln!(std::io::stderr(), "  try: {remedy}");
        }
    }

    /// A spinner, for work of unknown length.
    pub(crate) fn spinner(&self, what: &str) -> ProgressBar {
        if self.is_silent {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("  {spinner} {msg} ({elapsed})"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        if !std::io::stderr().is_terminal() {
            let _ = writeln!(std::io::stderr(), "  {what} ...");
        }
        bar
    }

    /// Progress over `bytes` bytes.
    pub(crate) fn bytes_bar(&self, what: &str, bytes: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        bar.set_style(
            style("  {msg:<10} [{bar:36}] {bytes:>10} of {total_bytes} {binary_bytes_per_sec:>12} {eta:>4}")
                .progress_chars("=> "),
        );
        bar.set_message(what.to_owned());
        bar
    }

    /// Progress over `count` things.
    pub(crate) fn count_bar(&self, what: &str, count: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::stderr());
        bar.set_style(style("  {msg:<24} [{bar:36}] {pos} of {len}").progress_chars("=> "));
        bar.set_message(what.to_owned());
        bar
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates of this file are well formed")
}

/// Columns as wide as their widest cell; the first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("  {cell:<width$}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up() {
        let rows = vec![vec!["brick".into(), "state".into()], vec!["b1".into(), "up".into()]];
        assert_eq!(table(&rows), "  brick  state\n  b1     up\n");
    }
}
