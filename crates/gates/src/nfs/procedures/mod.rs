//! The procedures of NFS version 3, each one a translation.
//!
//! | file | what |
//! |---|---|
//! | `all.rs` | dispatch |
//! | `objects.rs` | attributes, permissions, links, limits |
//! | `names.rs` | finding, making, moving and removing names |
//! | `data.rs` | the bytes of files |
//! | `listing.rs` | directories |

mod all;
mod data;
mod listing;
mod names;
mod objects;
