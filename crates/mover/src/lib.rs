//! Moves files from one tier of a volume to another.
//!
//! A mover is a client like any other. It copies a file's bytes into a file without a name in the other tier, makes
//! the copy stable, and asks the metadata service to swap the two files' objects:
//!
//! ```text
//! mover                          metadata service                           bricks
//!   ├── Open (for writing) ────────▶│ other clients may no longer cache        │
//!   ├── CreateTemporary, tier ─────▶│ a file that goes with its last close     │
//!   │◀── attributes: n changes ─────┤                                          │
//!   ├── read, write, fsync ───────────────────────────────────────────────────▶│ old object, new object
//!   ├── SwapObjects, n ────────────▶│ reads and writes of others: quiesced     │
//!   │                               │ still n changes, nobody writes? one record: old and new change places
//!   │◀── done ──────────────────────┤ the others go on, with the new object    │
//!   ├── Release ───────────────────▶│ the temporary file goes: ── Purge ──────▶│ the old object
//! ```
//!
//! A crash anywhere leaves the file in one tier or in the other, whole. A temporary file goes when its client has
//! closed it or is fenced, and takes its object along. A writer wins: its file is left where it is.
//!
//! | file | what |
//! |---|---|
//! | `copy.rs` | moves one file |
//! | `policy.rs` | which tier a file belongs in, by its last use |
//! | `walk.rs` | all files of a tree |
//! | `pace.rs` | a bound on bytes per second |

#![forbid(unsafe_code)]

mod copy;
mod pace;
mod policy;
mod walk;

pub use copy::{MoveOutcome, Mover};
pub use policy::Policy;
pub use walk::Walk;
