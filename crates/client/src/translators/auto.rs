//! Auto: settles what the translators do with each request, from the settings that somebody made and from what the
//! reads of the file look like (state/pattern.rs).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use types::Buf;
use types::tuning::{Key, Value};

use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::state::page_cache::PageCache;
use crate::state::pattern::{Noted, RecentBlocks};
use crate::state::settings::Settings;
use crate::state::tunings::Tunings;
use crate::translators::{Answer, Below, Read, Translator, Write};

/// Settles the settings.
pub(crate) struct Auto {
    pub(crate) tunings: Arc<Tunings>,
    pub(crate) recent: Arc<Mutex<RecentBlocks>>,
    /// Those of io-cache.
    pub(crate) pages: Arc<PageCache>,
    /// The mount has a cache on a disk.
    pub(crate) has_disk_cache: bool,
}

impl Auto {
    /// What the translators do now with requests to a file.
    fn settings(&self, file: &OpenFile, in_kernel: bool) -> Settings {
        self.tunings.settings(file, in_kernel)
    }

    /// Records a read, unless nothing depends on it.
    fn note(&self, read: &Read<'_>) {
        read.file.in_kernel.store(read.in_kernel, Ordering::Relaxed);
        let made = self.tunings.of(read.file);
        let is_fixed = |key| matches!(made.get(key), Some(Value::On | Value::Off));
        let disk_cache = !self.has_disk_cache || is_fixed(Key::DiskCache);
        let rest = is_fixed(Key::IoCache) && is_fixed(Key::ReadAhead) && made.get(Key::IoCachePage).is_some();
        if disk_cache && rest {
            return;
        }
        let (file, offset, len) = (read.file.inode.0, read.offset, read.len as u64);
        let (size, cache) = (read.file.lock().size, self.pages.limit());
        let noted = Noted { file, size, cache, offset, len };
        read.file.pattern().note_read(noted, &mut lock(&self.recent));
    }
}

impl Translator for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn read<'a>(&'a self, read: Read<'a>, below: Below<'a>) -> Answer<'a, Buf> {
        self.note(&read);
        below.read(Read { settings: self.settings(read.file, read.in_kernel), ..read })
    }

    fn write<'a>(&'a self, write: Write<'a>, below: Below<'a>) -> Answer<'a, ()> {
        below.write(Write { settings: self.settings(write.file, false), ..write })
    }
}
