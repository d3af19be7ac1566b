//! Loop devices, which fail when a test wants it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{Fixture, text};

/// A block device over a file of the fixture, which ends with the fixture.
pub(crate) struct Loop {
    pub(crate) file: PathBuf,
    pub(crate) device: String,
}

impl Loop {
    pub(crate) fn new(fixture: &Fixture, name: &str, len: u64) -> Loop {
        let file = fixture.path(name);
        File::create(&file).and_then(|file| file.set_len(len)).expect("a file");
        let device = ran("losetup", &["--find", "--show", text(&file)]);
        Loop { file, device: device.trim().to_owned() }
    }

    /// Another size, while it is in use: reads and writes beyond it fail.
    pub(crate) fn resize(&self, len: u64) {
        File::options().write(true).open(&self.file).and_then(|file| file.set_len(len)).expect("a size");
        ran("losetup", &["--set-capacity", &self.device]);
    }
}

/// What a program says, which must end well.
pub(crate) fn ran(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
