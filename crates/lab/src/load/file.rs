//! A file of a mounted file system.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::Sink;
use crate::error::{Result, doing};

/// See the module.
pub struct LocalFile(File);

impl LocalFile {
    /// A new file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> Result<LocalFile> {
        File::create(path).map(LocalFile).map_err(doing(format!("make {}", path.display())))
    }

    /// A file, to be read.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<File> {
        File::open(path).map_err(doing(format!("open {}", path.display())))
    }
}

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink for LocalFile {
    fn finish(&mut self) -> std::io::Result<()> {
        self.0.sync_all()
    }
}
