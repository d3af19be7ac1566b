//! Somebody who runs commands while a test has files of a mount open.
//!
//! A command that the test itself starts inherits those files, and the kernel closes them before it runs: a close may
//! wait for a daemon that the command was to start.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::fixture::{CommandOutput, Fixture, text};

/// A shell that was started before the files were opened.
pub(crate) struct Shell {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Where a command's words go.
    said: [PathBuf; 2],
}

impl Shell {
    /// For a fixture on which no file of a mount is open yet.
    pub(crate) fn new(fixture: &Fixture) -> Shell {
        let mut shell = Command::new("sh")
            .env("SHOAL_DIR", fixture.home())
            .env_remove("SHOAL_META")
            .env_remove("SHOAL_KEY_FILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let orders = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("it is piped"));
        Shell {
            shell,
            orders,
            answers,
            said: ["out", "err"].map(|end| fixture.path(&format!("errand.{end}"))),
        }
    }

    /// Runs a command to its end. Its words have nothing in them that a shell takes for its own.
    pub(crate) fn shoal(&mut self, words: &str) -> CommandOutput {
        let [out, err] = [text(&self.said[0]), text(&self.said[1])];
        let binary = env!("CARGO_BIN_EXE_shoal");
        let orders = self.orders.as_mut().expect("the shell lives");
        writeln!(orders, "{binary} {words} </dev/null >{out} 2>{err}; echo $?").expect("the shell listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the shell answers");
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        CommandOutput { ok: answer.trim() == "0", stdout: read(&self.said[0]), stderr: read(&self.said[1]) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // At the end of its orders it goes.
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}
