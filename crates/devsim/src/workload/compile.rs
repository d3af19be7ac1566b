//! Compilebench: one process that writes a tree of sources, compiles it, or reads it with what was compiled.

use std::collections::VecDeque;

use super::program::Step;
use crate::random::Random;
use crate::time::US;

/// Where trees begin, and bytes that they may have.
const TREES: u64 = 16 << 30;
/// Files of a directory; each directory has a place of its own, and files follow each other in it.
const FILES: u64 = 64;
const DIRECTORY: u64 = 32 << 20;
/// Work for one file, in microseconds: names, and 4 KiB of it.
const NAME_US: u64 = 30;
const BLOCK_US: u64 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Create,
    Make,
    Read,
}

#[derive(Debug)]
pub(crate) struct Compile {
    phase: Phase,
    files: u64,
    /// Where the next file of the directory goes.
    at: u64,
}

impl Compile {
    pub(super) fn new(phase: Phase) -> Compile {
        Compile { phase, files: 0, at: 0 }
    }

    /// A place for a file behind the last one. Now and then something else lies between.
    fn place(&mut self, random: &mut Random, length: u64) -> u64 {
        if self.files.is_multiple_of(FILES) {
            self.at = random.below(TREES / DIRECTORY) * DIRECTORY;
        }
        self.files += 1;
        if random.percent(20) {
            self.at += 4096 * random.within(1, 16);
        }
        let place = self.at;
        self.at += length;
        place
    }

    pub(super) fn plan(&mut self, random: &mut Random, steps: &mut VecDeque<Step>) {
        // Sources have some blocks; objects more, and a few of them many.
        let length = match self.phase {
            Phase::Create => random.size(12, 16),
            Phase::Make if random.percent(5) => random.size(18, 20),
            Phase::Make => random.size(12, 18),
            Phase::Read if random.percent(3) => random.size(18, 20),
            Phase::Read => random.size(12, 17),
        };
        let offset = self.place(random, length);
        let compute = Step::Compute((NAME_US + BLOCK_US * length.div_ceil(4096)) * US);
        match self.phase {
            Phase::Create => {
                steps.push_back(compute);
                steps.push_back(Step::Write { file: self.files, offset, length });
            }
            Phase::Make => {
                // Its source is cached: it has just been written.
                steps.push_back(compute);
                steps.push_back(Step::Write { file: self.files, offset, length });
            }
            Phase::Read => {
                steps.push_back(compute);
                steps.push_back(Step::Read { offset, length });
            }
        }
        steps.push_back(Step::Done { kind: 0, bytes: length });
    }
}
