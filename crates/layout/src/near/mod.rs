//! Placement by hops: the members of a group lie around its primary.
//!
//! ```text
//!   bricks, topology --Bricks--> candidates of each primary: a ball around it
//!                    --Symmetry-> primaries that look alike: what is chosen for one holds for all of them
//!   candidates --Search--> members of each group --exchange--> as many groups for each brick --roles--> slots
//! ```
//!
//! | file | what |
//! |---|---|
//! | `placement.rs` | what is asked for, and [`build_groups_near`] |
//! | `bricks.rs` | bricks by number, their failure domains, the candidates around each |
//! | `symmetry.rs` | shifts that map the network onto itself |
//! | `search.rs` | the members of each group, by links' loads and by peers |
//! | `exchange.rs` | evens out in how many groups the bricks are |
//! | `relay.rs` | the tree along which a stripe goes to its members |
//! | `route.rs` | by which of three routes a stripe goes |
//! | `repair.rs` | the path of members along which the sum for a lost unit comes to the primary |
//! | `report.rs` | what a table costs: hops, load of links, peers, sets of nodes that lose data |

mod bricks;
mod exchange;
mod placement;
mod relay;
mod repair;
mod report;
mod route;
mod search;
mod symmetry;

pub use placement::{Placement, Primaries, Scatter, build_groups_near};
pub use relay::{Relay, RelayStep};
pub use repair::repair_path;
pub use report::{PlacementReport, RouteCost, RouteCosts};
pub use route::{Sender, WriteRoute};

#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod tests;
