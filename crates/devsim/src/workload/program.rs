//! What all programs have: names, processes, steps.

use std::collections::VecDeque;
use std::fmt;

use pace::device::Operation;

use super::blog::Blog;
use super::compile::{Compile, Phase};
use super::file_server::FileServer;
use super::fio::{FioA, FioB};
use super::mail::Mail;
use crate::random::Random;
use crate::time::Time;

/// A workload of the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkloadName {
    /// fio: 4 KiB to 8 MiB, sequential and random, reads and writes.
    FioA,
    /// fio: the pattern of a file server (IOmeter), 64 in flight.
    FioB,
    /// Postmark: 500 files of 4 KiB to 16 MiB.
    Postmark,
    /// Blogbench: readers, writers, rewriters, commenters.
    Blogbench,
    /// Dbench: 128 clients of a file server.
    Dbench,
    /// Compilebench, initial create.
    CompileCreate,
    /// Compilebench, compile.
    CompileMake,
    /// Compilebench, read compiled tree.
    CompileRead,
}

impl WorkloadName {
    /// All of them.
    pub const ALL: [WorkloadName; 8] = [
        WorkloadName::FioA,
        WorkloadName::FioB,
        WorkloadName::Postmark,
        WorkloadName::Blogbench,
        WorkloadName::Dbench,
        WorkloadName::CompileCreate,
        WorkloadName::CompileMake,
        WorkloadName::CompileRead,
    ];

    /// The name in commands and reports.
    pub fn word(self) -> &'static str {
        match self {
            WorkloadName::FioA => "fio-a",
            WorkloadName::FioB => "fio-b",
            WorkloadName::Postmark => "postmark",
            WorkloadName::Blogbench => "blogbench",
            WorkloadName::Dbench => "dbench",
            WorkloadName::CompileCreate => "compilebench-create",
            WorkloadName::CompileMake => "compilebench-compile",
            WorkloadName::CompileRead => "compilebench-read",
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What a process does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It computes for so long.
    Compute(Time),
    /// It reads a file that is not in the page cache, from one end to the other.
    Read { offset: u64, length: u64 },
    /// It reads or writes past the page cache.
    Direct { operation: Operation, offset: u64, length: u64 },
    /// It writes into the page cache.
    Write { file: u64, offset: u64, length: u64 },
    /// It waits until what was written to a file is durable.
    Sync { file: u64 },
    /// It removes a file.
    Delete { file: u64 },
    /// An operation has ended.
    Done { kind: usize, bytes: u64 },
}

/// A program at work.
#[derive(Debug)]
pub(crate) enum Program {
    FioA(FioA),
    FioB(FioB),
    Mail(Mail),
    Blog(Blog),
    FileServer(FileServer),
    Compile(Compile),
    /// No program: requests come from a trace.
    Nothing,
}

impl Program {
    pub(crate) fn new(name: WorkloadName, seed: u64) -> Program {
        let mut random = Random::new(seed ^ 0x70);
        match name {
            WorkloadName::FioA => Program::FioA(FioA::new()),
            WorkloadName::FioB => Program::FioB(FioB),
            WorkloadName::Postmark => Program::Mail(Mail::new(&mut random)),
            WorkloadName::Blogbench => Program::Blog(Blog::new()),
            WorkloadName::Dbench => Program::FileServer(FileServer::new()),
            WorkloadName::CompileCreate => Program::Compile(Compile::new(Phase::Create)),
            WorkloadName::CompileMake => Program::Compile(Compile::new(Phase::Make)),
            WorkloadName::CompileRead => Program::Compile(Compile::new(Phase::Read)),
        }
    }

    /// How many processes it has.
    pub(crate) fn processes(&self) -> u32 {
        match self {
            Program::FioA(_) => FioA::PROCESSES,
            Program::FioB(_) => FioB::IN_FLIGHT,
            Program::Mail(_) | Program::Compile(_) => 1,
            Program::Blog(_) => Blog::PROCESSES,
            Program::FileServer(_) => FileServer::CLIENTS,
            Program::Nothing => 0,
        }
    }

    /// The process as the scheduler knows it.
    pub(crate) fn owner(&self, process: u32) -> u32 {
        match self {
            // One program with many requests in flight.
            Program::FioB(_) => 0,
            _ => process,
        }
    }

    /// The names of its kinds of operations.
    pub(crate) fn kinds(&self) -> &'static [&'static str] {
        match self {
            Program::FioA(_) | Program::FioB(_) | Program::Blog(_) | Program::FileServer(_) => {
                &["read", "write"]
            }
            Program::Mail(_) => &["read", "write"],
            Program::Compile(_) => &["file"],
            Program::Nothing => &[],
        }
    }

    /// Plans the next operation of a process: at least one step that takes time.
    pub(crate) fn plan(&mut self, process: u32, random: &mut Random, steps: &mut VecDeque<Step>) {
        match self {
            Program::FioA(fio) => fio.plan(process, random, steps),
            Program::FioB(fio) => fio.plan(random, steps),
            Program::Mail(mail) => mail.plan(random, steps),
            Program::Blog(blog) => blog.plan(process, random, steps),
            Program::FileServer(server) => server.plan(process, random, steps),
            Program::Compile(compile) => compile.plan(random, steps),
            Program::Nothing => {}
        }
    }
}
