//! The settings of the translators: those of the volume, of this mount, and of open files.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use types::Tuning;
use types::tuning::TuningError;

use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::state::pattern::Class;
use crate::state::settings::Settings;

/// Settings that apply to a mount, or to one of its open files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TuningReport {
    /// Those of the volume.
    pub volume: Tuning,
    /// Those of this mount.
    pub mount: Tuning,
    /// Those of the open file.
    pub file: Tuning,
    /// What is in effect for it now: the settings, and where there is none, what the client has chosen.
    pub effective: Tuning,
    /// What kind of work is done on the file.
    pub class: Class,
    /// Whether the file's bytes are read again.
    pub rereads: bool,
}

/// The settings of a volume and a mount. They change while the mount is in use.
#[derive(Default)]
pub(crate) struct Tunings {
    levels: Mutex<Levels>,
    /// Grows with every change, so that open files notice it.
    version: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Levels {
    volume: Tuning,
    mount: Tuning,
}

impl Tunings {
    /// Takes the volume's settings from the cluster map.
    pub(crate) fn set_volume(&self, tuning: Tuning) {
        let mut levels = lock(&self.levels);
        if levels.volume != tuning {
            levels.volume = tuning;
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Changes the settings of the mount.
    pub(crate) fn change_mount(&self, changes: &str) -> Result<(), TuningError> {
        lock(&self.levels).mount.change(changes)?;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The settings of the volume and of the mount.
    pub(crate) fn levels(&self) -> (Tuning, Tuning) {
        let levels = *lock(&self.levels);
        (levels.volume, levels.mount)
    }

    /// The settings that apply to a file.
    pub(crate) fn of(&self, file: &OpenFile) -> Tuning {
        let (volume, mount) = self.levels();
        file.lock().tuning.or(&mount).or(&volume)
    }

    /// What the translators do now with requests to a file. The kernel caches and reads ahead itself if `in_kernel`.
    pub(crate) fn settings(&self, file: &OpenFile, in_kernel: bool) -> Settings {
        Settings::resolve(&self.of(file), file.pattern().choice(in_kernel))
    }

    /// The number of changes so far.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}
