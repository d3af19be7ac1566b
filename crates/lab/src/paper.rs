//! The papers whose experiments can be repeated.

use std::path::Path;

use serde_json::Value;

use crate::error::{Result, doing};
use crate::verdict::Claim;
use crate::{paper000, paper001, paper002, paper003, paper004};

/// A paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// Performance optimization in GlusterFS on SSDs (2016).
    GlusterOnSsds,
    /// Single I/O space service for cluster computers (2006).
    SingleIoSpace,
    /// Torus network based distributed storage (2016).
    Torus,
    /// Linux I/O scheduler by the size of the SSD's buffer (2014).
    SsdBuffer,
    /// Data network performance of a global file system (2016).
    ShallowSwitch,
}

/// What a paper's runs say.
pub struct Report {
    /// Each finding, with its verdict.
    pub claims: Vec<Claim>,
    /// The page, its pictures and all runs, by name.
    files: Vec<(&'static str, String)>,
}

impl Paper {
    /// Its number, which begins the names of its files.
    pub fn number(self) -> &'static str {
        match self {
            Paper::GlusterOnSsds => "000",
            Paper::SingleIoSpace => "001",
            Paper::Torus => "002",
            Paper::SsdBuffer => "003",
            Paper::ShallowSwitch => "004",
        }
    }

    /// RAM of its sandbox, in bytes.
    pub fn sandbox_bytes(self) -> u64 {
        match self {
            Paper::GlusterOnSsds => paper000::scale::SANDBOX_BYTES,
            Paper::SingleIoSpace => paper001::scale::SANDBOX_BYTES,
            Paper::Torus => paper002::scale::SANDBOX_BYTES,
            Paper::SsdBuffer => paper003::scale::SANDBOX_BYTES,
            Paper::ShallowSwitch => paper004::scale::SANDBOX_BYTES,
        }
    }

    /// Checks whether what it needs is there, before anything is made. `disk_dir` is as for [`Paper::measure`].
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self, disk_dir: &Path, is_quick: bool) -> Result<()> {
        match self {
            Paper::SsdBuffer => paper003::ready::check(disk_dir, &scale_003(is_quick)),
            Paper::GlusterOnSsds | Paper::SingleIoSpace | Paper::Torus | Paper::ShallowSwitch => Ok(()),
        }
    }

    /// Measures everything, within a [sandbox](crate::sandbox), in full or in small. `shoal` is the program; `disk_dir` is on
    /// the disk on which a paper about disks measures; `say` gets progress messages. Returns all runs as JSON.
    ///
    /// # Errors
    /// A step failed; then there are no results.
    pub fn measure(self, shoal: &Path, disk_dir: &Path, is_quick: bool, say: &dyn Fn(&str)) -> Result<Value> {
        match self {
            Paper::GlusterOnSsds => {
                let scale = if is_quick { paper000::Scale::quick() } else { paper000::Scale::full() };
                paper000::measure(shoal, &scale, say).map(|measured| measured.to_json())
            }
            Paper::SingleIoSpace => {
                let scale = if is_quick { paper001::Scale::quick() } else { paper001::Scale::full() };
                paper001::measure(shoal, &scale, say).map(|measured| measured.to_json())
            }
            Paper::Torus => {
                let scale = if is_quick { paper002::Scale::quick() } else { paper002::Scale::full() };
                paper002::measure(shoal, &scale, say).map(|measured| measured.to_json())
            }
            Paper::SsdBuffer => {
                let scale = scale_003(is_quick);
                paper003::measure(shoal, disk_dir, &scale, say).map(|measured| measured.to_json())
            }
            Paper::ShallowSwitch => {
                let scale = if is_quick { paper004::Scale::quick() } else { paper004::Scale::full() };
                paper004::measure(shoal, &scale, say).map(|measured| measured.to_json())
            }
        }
    }

    /// Reads the output of [`Paper::measure`].
    ///
    /// # Errors
    /// It is not of this paper, something is missing, or another version wrote it.
    pub fn report(self, document: &Value) -> Result<Report> {
        if document["paper"].as_str().is_some_and(|paper| paper != self.number()) {
            return Err(doing("read the runs")(format!("they are of paper {}", document["paper"])));
        }
        Ok(match self {
            Paper::GlusterOnSsds => {
                let measured = paper000::Measured::from_json(document)?;
                Report { claims: paper000::claims::claims(&measured), files: paper000::files(&measured) }
            }
            Paper::SingleIoSpace => {
                let measured = paper001::Measured::from_json(document)?;
                Report { claims: paper001::claims::claims(&measured), files: paper001::files(&measured) }
            }
            Paper::Torus => {
                let measured = paper002::Measured::from_json(document)?;
                Report { claims: paper002::claims::claims(&measured), files: paper002::files(&measured) }
            }
            Paper::SsdBuffer => {
                let measured = paper003::Measured::from_json(document)?;
                Report { claims: paper003::claims::claims(&measured), files: paper003::files(&measured) }
            }
            Paper::ShallowSwitch => {
                let measured = paper004::Measured::from_json(document)?;
                Report { claims: paper004::claims::claims(&measured), files: paper004::files(&measured) }
            }
        })
    }
}

fn scale_003(is_quick: bool) -> paper003::Scale {
    if is_quick { paper003::Scale::quick() } else { paper003::Scale::full() }
}

impl Report {
    /// Writes the page, its pictures and all runs into a directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(doing(format!("make {}", dir.display())))?;
        for (name, text) in &self.files {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(doing(format!("write {}", path.display())))?;
        }
        Ok(())
    }
}
