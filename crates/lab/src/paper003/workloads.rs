//! The six workloads as jobs of fio.
//!
//! Each has the sizes, the processes and the mix of the workload that `shoal sim sched` models, made smaller to fit a run of some
//! seconds. What the programs themselves do besides I/O is left out.

use std::fmt::Write;
use std::path::Path;

use super::fio::Found;
use super::scale::{DEPTH, Scale};
use crate::document::MB;

/// A workload of the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Workload {
    /// Four processes, direct, 4 KiB to 8 MiB, in order and at random.
    FioA,
    /// The pattern of Intel's file server, 64 in flight.
    FioB,
    /// 500 files, read and written by 4 KiB.
    Postmark,
    /// 100 readers and nine writers.
    Blogbench,
    /// 128 clients that read, write and flush.
    Dbench,
    /// A tree is made, compiled and read.
    Compilebench,
}

/// One run of fio.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// What is done.
    pub name: &'static str,
    /// The job file.
    pub jobs: String,
    /// A directory of the workload's that must be empty before.
    pub emptied: Option<&'static str>,
    /// Whether its time ends when all files are stable.
    pub is_stable: bool,
}

impl Workload {
    /// All, in the order of the paper.
    pub const ALL: [Workload; 6] = [
        Workload::FioA,
        Workload::FioB,
        Workload::Postmark,
        Workload::Blogbench,
        Workload::Dbench,
        Workload::Compilebench,
    ];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Workload::FioA => "fio-a",
            Workload::FioB => "fio-b",
            Workload::Postmark => "postmark",
            Workload::Blogbench => "blogbench",
            Workload::Dbench => "dbench",
            Workload::Compilebench => "compilebench",
        }
    }

    /// What its score is.
    pub fn metric(self) -> &'static str {
        match self {
            Workload::Blogbench => "operations/s, geometric mean of reads and writes",
            Workload::Compilebench => "MB/s, geometric mean of its three phases",
            _ => "MB/s",
        }
    }

    /// The sizes of its jobs, for people.
    pub fn words(self) -> &'static str {
        match self {
            Workload::FioA => {
                "4 processes, direct, two in order and two at random, half reads, every power of 2 from 4 KiB to 8 MiB as likely"
            }
            Workload::FioB => {
                "direct, 64 in flight by one process (libaio), 80 % reads, at random, 512 B to 64 KiB, 60 % have 4 KiB"
            }
            Workload::Postmark => {
                "one process, 500 files of 4 KiB to 1 MiB, half reads, 4 KiB, through the page cache; then everything is made stable"
            }
            Workload::Blogbench => {
                "100 readers at random past the page cache, 4 to 64 KiB; 3 writers and a rewriter of 64 KiB, 5 commenters of 4 KiB, \
                 each write followed by fdatasync"
            }
            Workload::Dbench => {
                "128 processes with a file of 1 MiB each, 76 % reads, mostly cached, 4 to 64 KiB; fdatasync after 32 writes"
            }
            Workload::Compilebench => {
                "one process makes a tree of files of 4 to 64 KiB; one reads it and another makes files of 4 to 256 KiB; one reads \
                 the tree; what is made is made stable"
            }
        }
    }

    /// Its runs of fio, with files below `dir`, in order.
    pub fn phases(self, dir: &Path, scale: &Scale) -> Vec<Phase> {
        let dir = dir.join(self.title());
        let timed = format!("time_based=1\nruntime={}ms\n", scale.run_ms);
        let head = |more: &str| global(&dir, more);
        let one = |jobs: String| {
            vec![Phase { name: self.title(), jobs, emptied: None, is_stable: self == Workload::Postmark }]
        };
        match self {
            Workload::FioA => one(head(&format!(
                "{timed}direct=1\nioengine=psync\nfilesize={}\nbssplit={}\n",
                scale.fio_a_file,
                powers_of_2()
            )) + "[in-order]\nrw=rw\nnumjobs=2\n[at-random]\nrw=randrw\nnumjobs=2\n"),
            Workload::FioB => one(head(&format!(
                "{timed}direct=1\nioengine=libaio\niodepth=64\nfilesize={}\nbssplit={FILE_SERVER}\n",
                scale.fio_b_file
            )) + "[file-server]\nrw=randrw\nrwmixread=80\n"),
            Workload::Postmark => one(head(&format!(
                "{}ioengine=psync\nbs=4k\nnrfiles=500\nfilesize=4k-1m\nopenfiles=100\nfile_service_type=random\nio_size={}\n",
                capped(scale),
                scale.postmark
            )) + "[transactions]\nrw=rw\n"),
            Workload::Blogbench => {
                let mut jobs = head(&format!("{timed}ioengine=psync\nfile_service_type=random\n"));
                let _ = write!(
                    jobs,
                    "[readers]\nrw=randread\nbsrange=4k-64k\nblockalign=4k\ndirect=1\nnumjobs=100\nfilename=articles\n\
                     size={}\n",
                    scale.fio_b_file
                );
                for (name, count, bytes) in
                    [("writers", 3, "64k"), ("rewriter", 1, "64k"), ("commenters", 5, "4k")]
                {
                    let _ = write!(
                        jobs,
                        "[{name}]\nrw=randwrite\nbs={bytes}\nfdatasync=1\nnumjobs={count}\nnrfiles=16\nfilesize=1m\n"
                    );
                }
                one(jobs)
            }
            Workload::Dbench => one(head(&format!("{timed}ioengine=psync\nfilesize=1m\n"))
                + "[clients]\nrw=randrw\nrwmixread=76\nbsrange=4k-64k\nblockalign=4k\nfdatasync=32\nnumjobs=128\n"),
            Workload::Compilebench => compilebench(&dir, scale),
        }
    }

    /// The score of a run: what its phases did, and how long it took after each until all was stable, in seconds.
    pub fn score(self, phases: &[(Found, f64)]) -> f64 {
        let rate = |(found, stable): &(Found, f64)| {
            found.bytes() as f64 / MB / (found.seconds() + stable).max(f64::MIN_POSITIVE)
        };
        match self {
            Workload::Blogbench => {
                let rates = phases.iter().map(|(found, _)| found.rates());
                rates.map(|[reads, writes]| (reads * writes).sqrt()).sum()
            }
            _ => {
                let product: f64 = phases.iter().map(rate).product();
                product.powf(1.0 / phases.len().max(1) as f64)
            }
        }
    }
}

/// The three phases: the tree's files are made anew each time, as those of the objects.
fn compilebench(dir: &Path, scale: &Scale) -> Vec<Phase> {
    let global = |name: &str| {
        let more = format!("{}ioengine=psync\nbs=4k\nopenfiles=1\n", capped(scale));
        global(&dir.join(name), &more) + "file_service_type=sequential\n"
    };
    let files = scale.tree_files;
    let tree = format!("nrfiles={files}\nfilename_format=source.$filenum\n");
    let made = format!("{tree}rw=write\ncreate_on_open=1\nfilesize=4k-64k\n");
    let read = format!("[read]\n{tree}rw=read\n");
    let objects = format!(
        "[make]\ndirectory={}\nrw=write\ncreate_on_open=1\nnrfiles={}\nfilesize=4k-256k\nfilename_format=object.$filenum\n",
        dir.join("objects").display(),
        files / 2
    );
    let phase = |name, jobs, emptied: Option<&'static str>| Phase {
        name,
        jobs,
        emptied,
        is_stable: emptied.is_some(),
    };
    vec![
        phase("create", format!("{}[create]\n{made}", global("tree")), Some("tree")),
        phase("compile", format!("{}{read}{objects}", global("tree")), Some("objects")),
        phase("read", format!("{}{read}", global("tree")), None),
    ]
}

fn global(dir: &Path, more: &str) -> String {
    format!("[global]\ndirectory={}\nthread=1\nfallocate=none\n{more}", dir.display())
}

/// A limit for runs that end by themselves.
fn capped(scale: &Scale) -> String {
    format!("runtime={}ms\n", scale.run_ms * 4)
}

/// IOmeter's pattern of a file server: sizes and percents.
const FILE_SERVER: &str = "512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10";

/// Every power of 2 from 4 KiB to 8 MiB, each as likely as the others.
fn powers_of_2() -> String {
    (12..=23).map(|power| format!("{}/", 1u64 << power)).collect::<Vec<_>>().join(":")
}

/// Random reads of 4 KiB of a file or a device.
pub fn random_reads(file: &Path, size: u64, run_ms: u64) -> String {
    format!(
        "[reads]\nfilename={}\nsize={size}\nrw=randread\nbs=4k\ndirect=1\nioengine=io_uring\niodepth={DEPTH}\n\
         time_based=1\nruntime={run_ms}ms\nthread=1\nnorandommap=1\n",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::super::fio::{Direction, Job};
    use super::*;

    fn found(reads: (u64, u64), writes: (u64, u64), seconds: f64) -> Found {
        let direction = |(bytes, operations)| Direction { bytes, operations, mean_us: 1.0 };
        let job = Job { name: "a".into(), reads: direction(reads), writes: direction(writes), seconds };
        Found { jobs: vec![job] }
    }

    #[test]
    fn job_files_have_sections_and_stay_below_their_directory() {
        for workload in Workload::ALL {
            let phases = workload.phases(Path::new("/mnt"), &Scale::full());
            assert_eq!(phases.len(), if workload == Workload::Compilebench { 3 } else { 1 });
            for Phase { jobs, .. } in phases {
                assert!(jobs.starts_with("[global]\n") && jobs.matches('[').count() > 1, "{jobs}");
                for line in jobs.lines() {
                    assert!(line.starts_with('[') || line.split_once('=').is_some(), "{line}");
                    let dir = line.strip_prefix("directory=");
                    assert!(
                        dir.is_none_or(|dir| dir.starts_with(&format!("/mnt/{}", workload.title()))),
                        "{line}"
                    );
                }
                assert!(jobs.contains("runtime="), "every run ends: {jobs}");
            }
        }
    }

    #[test]
    fn sizes_are_those_of_the_paper() {
        let percents = FILE_SERVER.split(':').map(|part| part.split_once('/').expect("a percent").1);
        assert_eq!(percents.map(|part| part.parse::<u32>().expect("a number")).sum::<u32>(), 100);
        let powers = powers_of_2();
        assert!(powers.starts_with("4096/:8192/") && powers.ends_with(":8388608/"));
        let jobs = |of: Workload| of.phases(Path::new("/mnt"), &Scale::full())[0].jobs.clone();
        assert!(
            jobs(Workload::Dbench).contains("numjobs=128")
                && jobs(Workload::Blogbench).contains("numjobs=100")
        );
        assert!(
            random_reads(Path::new("/dev/loop7"), 1 << 20, 500)
                .contains("iodepth=32\ntime_based=1\nruntime=500ms")
        );
    }

    #[test]
    fn scores_are_the_workloads_own() {
        let one = found((4_000_000, 30), (2_000_000, 10), 1.5);
        assert_eq!(Workload::FioA.score(&[(one.clone(), 0.0)]), 4.0);
        assert_eq!(Workload::Postmark.score(&[(one.clone(), 1.5)]), 2.0);
        let blog = Workload::Blogbench.score(&[(found((1, 400), (1, 100), 1.0), 0.0)]);
        assert!((blog - 200.0).abs() < 1e-9);
        let phases = [(one.clone(), 0.0), (one.clone(), 1.5), (one, 4.5)];
        assert!((Workload::Compilebench.score(&phases) - 2.0).abs() < 1e-9);
    }
}
