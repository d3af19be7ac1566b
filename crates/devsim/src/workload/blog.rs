//! Blogbench: 100 readers, 3 writers, 1 rewriter, 5 commenters on blogs that grow. Nothing is synced.

use std::collections::VecDeque;

use super::program::Step;
use crate::random::Random;
use crate::time::US;

const READERS: u32 = 100;
const WRITERS: u32 = 3;
const REWRITERS: u32 = 1;
const COMMENTERS: u32 = 5;
/// Files of a blog: an article, pictures, comments. Each has a slot.
const SLOTS: u64 = 16;
const SLOT: u64 = 256 << 10;
/// Blogs at the beginning, and the most.
const BLOGS: u64 = 2_000;
const BLOGS_MAX: u64 = 12_000;
/// So many percent of what is read are in the page cache.
const CACHED_PERCENT: u64 = 70;
/// Work for one file, in microseconds.
const READ_US: u64 = 100;
const WRITE_US: u64 = 150;

#[derive(Debug)]
pub(crate) struct Blog {
    blogs: u64,
}

/// The bytes of a file follow from its number: a file keeps its size.
fn size_of(blog: u64, slot: u64) -> u64 {
    let mut random = Random::new(blog * SLOTS + slot);
    match slot {
        // An article, pictures, comments.
        0 => random.size(12, 16),
        1..=4 => random.size(14, 18),
        _ => 4096,
    }
}

impl Blog {
    pub(super) const PROCESSES: u32 = READERS + WRITERS + REWRITERS + COMMENTERS;

    pub(super) fn new() -> Blog {
        Blog { blogs: BLOGS }
    }

    fn place(blog: u64, slot: u64) -> u64 {
        (blog * SLOTS + slot) * SLOT
    }

    fn write(blog: u64, slot: u64, steps: &mut VecDeque<Step>) {
        let length = size_of(blog, slot).min(SLOT);
        steps.push_back(Step::Compute(WRITE_US * US));
        steps.push_back(Step::Write { file: blog * SLOTS + slot, offset: Blog::place(blog, slot), length });
        steps.push_back(Step::Done { kind: 1, bytes: length });
    }

    pub(super) fn plan(&mut self, process: u32, random: &mut Random, steps: &mut VecDeque<Step>) {
        let blog = random.below(self.blogs);
        if process < READERS {
            let slot = random.below(8);
            let length = size_of(blog, slot).min(SLOT);
            steps.push_back(Step::Compute(READ_US * US));
            if !random.percent(CACHED_PERCENT) {
                steps.push_back(Step::Read { offset: Blog::place(blog, slot), length });
            }
            steps.push_back(Step::Done { kind: 0, bytes: length });
        } else if process < READERS + WRITERS {
            let blog = self.blogs;
            self.blogs = if self.blogs < BLOGS_MAX { self.blogs + 1 } else { BLOGS };
            (0..=random.within(1, 4)).for_each(|slot| Blog::write(blog.min(BLOGS_MAX - 1), slot, steps));
        } else if process < READERS + WRITERS + REWRITERS {
            Blog::write(blog, random.below(5), steps);
        } else {
            Blog::write(blog, random.within(5, SLOTS - 1), steps);
        }
    }
}
