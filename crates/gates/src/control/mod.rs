//! What a mount or gate tells about itself to commands of its machine: texts of lines, for the files in `.shoal` of a FUSE mount,
//! and at a socket for the gates that have no files (`shoal xray --gate`, `shoal why --gate`).
//!
//! | file | what |
//! |---|---|
//! | `layers_text.rs` | what has entered each layer |
//! | `slow_text.rs` | the slowest requests and what they waited for |
//! | `tuning_text.rs` | the settings that apply |
//! | `question.rs` | what may be asked at the socket, and the answer |
//! | `socket.rs` | the socket |

mod layers_text;
mod question;
mod slow_text;
mod socket;
mod tuning_text;

pub use socket::serve;

pub(crate) use layers_text::{Whole, layers_text, peer_line, slow_line, window_numbers};
pub(crate) use slow_text::slow_text;
pub(crate) use tuning_text::tuning_text;
