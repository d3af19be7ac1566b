//! A file in which the processes of a machine tell each other of the receive window that they share.
//!
//! It has a record for each of a few processes. Who needs a part of the window writes its record again and again, and reads all
//! of them. An old record says nothing: its process waits for nothing any more, or is gone. Nothing is locked. Two processes
//! that take the same record at once notice it, because it has another owner then, and one of them takes another record.
//!
//! The file is in RAM, or it is not used: who writes to a disk may have to wait for it, and with it everything that is received.
//!
//! | bytes of a record | field |
//! |---|---|
//! | 0..8 | its owner, a number by chance |
//! | 8..16 | when it was written, in microseconds since the machine's start |
//! | 16..24 | the window, in bytes |
//! | 24..32 | a window that was too large, in bytes; 0 if none is known |

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pace::{Told, WINDOW_MAX, WINDOW_MIN};
use rustix::fs::fstatfs;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::private_files;
use crate::rpc::Neighbours;

/// Most processes that share a window. Further ones have one each.
const RECORDS: usize = 64;
const RECORD: usize = 32;
/// A record that is older says nothing, in microseconds.
const OLD_US: u64 = 500_000;

/// The file, for one process.
pub(super) struct NeighbourFile {
    path: PathBuf,
    /// Open once it was needed. Without it, this process has a window of its own.
    file: Option<io::Result<File>>,
    owner: u64,
    /// Its record, if it has told something.
    place: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    owner: u64,
    written_us: u64,
    window: u64,
    ceiling: u64,
}

impl Entry {
    fn encode(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let fields = [self.owner, self.written_us, self.window, self.ceiling];
        bytes
            .chunks_exact_mut(8)
            .zip(fields)
            .for_each(|(at, field)| at.copy_from_slice(&field.to_le_bytes()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Entry {
        let field = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Entry { owner: field(0), written_us: field(8), window: field(16), ceiling: field(24) }
    }

    fn is_young(&self, now_us: u64) -> bool {
        now_us.abs_diff(self.written_us) < OLD_US
    }

    fn told(&self) -> Told {
        let within = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).clamp(WINDOW_MIN, WINDOW_MAX);
        Told { window: within(self.window), ceiling: (self.ceiling > 0).then(|| within(self.ceiling)) }
    }
}

impl NeighbourFile {
    /// Nothing is opened before it is needed.
    pub(super) fn new(path: &Path) -> NeighbourFile {
        let mut owner = [0; 8];
        let got = getrandom(&mut owner, GetRandomFlags::empty());
        let owner = got.map_or(u64::from(std::process::id()), |_| u64::from_le_bytes(owner)).max(1);
        NeighbourFile { path: path.to_owned(), file: None, owner, place: None }
    }

    fn open(path: &Path) -> io::Result<File> {
        let opened =
            path.parent().map_or(Ok(None), |dir| private_files::make_dir(dir, |_| true)).and_then(|_| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                let (file, _) = private_files::open(path, &mut options)?;
                let is_in_ram = fstatfs(&file)?.f_type == libc::TMPFS_MAGIC;
                if is_in_ram { Ok(file) } else { Err(io::Error::other("it is not in RAM (tmpfs)")) }
            });
        opened.inspect_err(|error| {
            let path = path.display();
            tracing::warn!(%error, "the receive window is not shared with other processes: cannot use {path}");
        })
    }

    fn exchange_in(&mut self, now_us: u64, told: Option<Told>) -> io::Result<Vec<Told>> {
        let (path, owner) = (&self.path, self.owner);
        let Ok(file) = self.file.get_or_insert_with(|| NeighbourFile::open(path)) else {
            return Ok(Vec::new());
        };
        let entries = read(file)?;
        let is_others = |entry: &Entry| entry.owner != owner && entry.owner != 0 && entry.is_young(now_us);
        let place = self.place.filter(|place| entries[*place].owner == owner);
        match told {
            Some(Told { window, ceiling }) => {
                // Each begins to look somewhere else.
                let first = owner as usize % RECORDS;
                let mut free = (first..RECORDS).chain(0..first).filter(|at| !is_others(&entries[*at]));
                self.place = place.or_else(|| free.next());
                if let Some(place) = self.place {
                    let (window, ceiling) = (window as u64, ceiling.unwrap_or(0) as u64);
                    let entry = Entry { owner, written_us: now_us, window, ceiling };
                    file.write_all_at(&entry.encode(), (place * RECORD) as u64)?;
                }
            }
            None => {
                if let Some(place) = place {
                    file.write_all_at(&Entry::default().encode(), (place * RECORD) as u64)?;
                }
                self.place = None;
            }
        }
        if told.is_some() && self.place.is_none() {
            // Nobody hears of it.
            return Ok(Vec::new());
        }
        Ok(entries.iter().filter(|entry| is_others(entry)).map(Entry::told).collect())
    }
}

/// All records; those that were never written are empty.
fn read(file: &File) -> io::Result<[Entry; RECORDS]> {
    let mut bytes = [0; RECORDS * RECORD];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    let mut entries = [Entry::default(); RECORDS];
    entries.iter_mut().zip(bytes.chunks_exact(RECORD)).for_each(|(entry, at)| *entry = Entry::decode(at));
    Ok(entries)
}

impl Neighbours for NeighbourFile {
    fn exchange(&mut self, now_us: u64, told: Option<Told>) -> Vec<Told> {
        self.exchange_in(now_us, told).unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot exchange the receive window with other processes");
            Vec::new()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(window: usize) -> Option<Told> {
        Some(Told { window, ceiling: Some(window * 2) })
    }

    fn windows(heard: &[Told]) -> Vec<usize> {
        let mut windows: Vec<usize> = heard.iter().map(|told| told.window).collect();
        windows.sort_unstable();
        windows
    }

    /// A directory in RAM that goes away with it.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            Dir(Path::new("/dev/shm").join(format!("neighbours-{name}-{}", std::process::id())))
        }

        fn process(&self) -> NeighbourFile {
            NeighbourFile::new(&self.0.join("below/window"))
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn processes_hear_of_each_other_while_they_tell() {
        let dir = Dir::new("hear");
        let [mut a, mut b, mut c] = [dir.process(), dir.process(), dir.process()];
        assert_eq!(a.exchange(1_000_000, told(20_000)), []);
        assert_eq!(windows(&b.exchange(1_000_010, told(40_000))), [20_000]);
        assert_eq!(windows(&a.exchange(1_000_020, told(21_000))), [40_000]);
        assert_eq!(windows(&c.exchange(1_000_030, None)), [21_000, 40_000]);
        assert_eq!(a.exchange(1_000_040, told(21_000))[0].ceiling, Some(80_000));
        b.exchange(1_000_050, None);
        assert_eq!(a.exchange(1_000_060, told(21_000)), [], "it has taken it back");
        assert_eq!(windows(&c.exchange(1_000_060 + OLD_US, None)), [], "it has ended");
    }

    #[test]
    fn two_that_take_one_record_both_have_one_in_the_end() {
        let dir = Dir::new("same");
        let [mut a, mut b] = [dir.process(), dir.process()];
        b.exchange(5, told(40_000));
        // As if it had looked before the other one wrote.
        a.place = b.place;
        let entry = Entry { owner: a.owner, written_us: 6, window: 20_000, ceiling: 0 };
        let file = File::options().write(true).open(&a.path).expect("the file");
        file.write_all_at(&entry.encode(), (b.place.expect("a record") * RECORD) as u64).expect("a record");
        assert_eq!(windows(&b.exchange(7, told(40_000))), [20_000]);
        assert_eq!(windows(&a.exchange(8, told(20_000))), [40_000]);
        assert_ne!(a.place, b.place);
    }

    #[test]
    fn what_a_file_says_stays_within_bounds_and_no_file_is_no_error() {
        let dir = Dir::new("bounds");
        let mut a = dir.process();
        a.exchange(5, told(20_000));
        let wild = Entry { owner: 7, written_us: 6, window: u64::MAX, ceiling: u64::MAX };
        let file = File::options().write(true).open(&a.path).expect("the file");
        for place in (0..RECORDS).filter(|place| Some(*place) != a.place) {
            file.write_all_at(&wild.encode(), (place * RECORD) as u64).expect("a record");
        }
        let heard = a.exchange(7, told(20_000));
        assert_eq!(heard.len(), RECORDS - 1);
        assert!(heard.iter().all(|told| told.window == WINDOW_MAX && told.ceiling == Some(WINDOW_MAX)));
        let mut late = dir.process();
        assert_eq!(late.exchange(8, told(1)), [], "it has no place to tell, and a window of its own");
        assert_eq!(late.place, None);
        let mut on_disk = NeighbourFile::new(Path::new("/proc/self/comm"));
        assert_eq!(on_disk.exchange(9, told(1)), [], "a file that is not in RAM");
        let mut nowhere = NeighbourFile::new(Path::new("/proc/no such directory/window"));
        assert_eq!(nowhere.exchange(9, told(1)), []);
    }
}
