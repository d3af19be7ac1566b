//! Dbench: 128 clients that do what a recorded client of a file server did. Most reads are cached; writes are gathered;
//! now and then a file is flushed.

use std::collections::VecDeque;

use super::program::Step;
use crate::random::Random;
use crate::time::US;

/// Bytes of a client's directory, and of one file.
const DIRECTORY: u64 = 256 << 20;
const FILE: u64 = 1 << 20;
/// Of a hundred operations so many are reads, and writes; the others are about names and attributes.
const READS: u64 = 42;
const WRITES: u64 = 13;
/// So many percent of reads are in the page cache.
const CACHED_PERCENT: u64 = 95;
/// A file is written with so many operations; of a hundred files that were written, so many are flushed.
const PARTS: u64 = 8;
const FLUSHED_PERCENT: u64 = 25;
/// Work for one operation, in microseconds: two cores' share of one client.
const OPERATION_US: u64 = 300;

#[derive(Debug)]
pub(crate) struct FileServer {
    clients: Vec<Client>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Client {
    file: u64,
    written: u64,
    at: u64,
}

impl FileServer {
    pub(super) const CLIENTS: u32 = 128;

    pub(super) fn new() -> FileServer {
        FileServer { clients: vec![Client::default(); FileServer::CLIENTS as usize] }
    }

    pub(super) fn plan(&mut self, process: u32, random: &mut Random, steps: &mut VecDeque<Step>) {
        let client = &mut self.clients[process as usize];
        let directory = u64::from(process) * DIRECTORY;
        steps.push_back(Step::Compute(OPERATION_US * US));
        let drawn = random.below(100);
        if drawn < READS {
            let length = random.size(12, 16);
            if !random.percent(CACHED_PERCENT) {
                let offset = directory + random.below(DIRECTORY / FILE) * FILE;
                steps.push_back(Step::Read { offset, length });
            }
            steps.push_back(Step::Done { kind: 0, bytes: length });
        } else if drawn < READS + WRITES {
            let (length, file) = (random.size(12, 16), u64::from(process) << 32 | client.file);
            let offset = directory + client.file * FILE + client.at;
            client.at += length;
            client.written += 1;
            steps.push_back(Step::Write { file, offset, length });
            if client.written == PARTS {
                if random.percent(FLUSHED_PERCENT) {
                    steps.push_back(Step::Sync { file });
                }
                *client = Client { file: (client.file + 1) % (DIRECTORY / FILE), written: 0, at: 0 };
            }
            steps.push_back(Step::Done { kind: 1, bytes: length });
        }
    }
}
