//! The story of `shoal demo`, told by real processes, real mounts and real files.
//!
//! | file | what |
//! |---|---|
//! | `story.rs` | the phases, in order |
//! | `scene.rs` | the cluster on its stage: directory, processes, mounts; and clearing the stage, whatever happens |
//! | `files.rs` | which files; copying them in; comparing them |
//! | `victims.rs` | which bricks are killed |
//! | `verdict.rs` | what came of it, in words and as JSON |

mod files;
mod scene;
mod story;
mod verdict;
mod victims;

pub(crate) use story::{Play, play};
