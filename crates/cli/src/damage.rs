//! Damaged disks and stores: a clear error where the code that reads them would panic.
//!
//! Builds for people abort at a panic, so nothing can be caught. But the hook of `main` runs before. What the process reads is
//! noted here, and the hook asks.

use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::problem::problem;

/// What this process reads that a damage may have made wrong.
#[derive(Clone)]
enum Reading {
    /// A metadata store: any page may be damaged, whenever it is reached.
    Store(String),
    /// The zones of a brick, until it has recovered.
    Brick(String),
}

static READING: Mutex<Option<Reading>> = Mutex::new(None);

fn note(reading: Option<Reading>) {
    *READING.lock().unwrap_or_else(PoisonError::into_inner) = reading;
}

/// From now on this process uses the metadata store at `path`.
pub(crate) fn reads_store(path: &Path) {
    note(Some(Reading::Store(path.display().to_string())));
}

/// Notes that a brick recovers, until it is dropped.
pub(crate) struct Recovering;

impl Recovering {
    pub(crate) fn begin(path: &str) -> Recovering {
        note(Some(Reading::Brick(path.to_owned())));
        Recovering
    }
}

impl Drop for Recovering {
    fn drop(&mut self) {
        note(None);
    }
}

/// The error for a damaged metadata store.
pub(crate) fn damaged_store(path: &str, why: &str) -> anyhow::Error {
    problem(
        format!("the metadata store {path} is damaged: {why}"),
        "`shoal meta restore BACKUP --dir NEW`; or, of several metadata servers, `shoal meta --join` with an empty directory",
    )
}

/// The error in the place of a panic, if what was read at that time explains it.
pub(crate) fn explain(info: &PanicHookInfo<'_>) -> Option<anyhow::Error> {
    // If the panicking thread holds it, nothing was noted yet.
    let reading = READING.try_lock().ok()?.clone()?;
    let place = info.location()?;
    let said = info.payload_as_str().unwrap_or("it contradicts itself");
    let why = format!("{said} ({}:{})", place.file().rsplit('/').next().unwrap_or_default(), place.line());
    match reading {
        Reading::Store(path) => meta::kv::reads_stores(place.file()).then(|| damaged_store(&path, &why)),
        Reading::Brick(path) => Some(problem(
            format!("the brick {path} is damaged, and cannot be recovered: {why}"),
            "`shoal brick replace` with a new brick: the others have its bytes",
        )),
    }
}
