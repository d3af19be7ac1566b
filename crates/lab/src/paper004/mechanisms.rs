//! The mechanisms of the paper's system, and what Shoal has in their place.

use crate::mechanism::Mechanism;

/// All mechanisms.
pub const MECHANISMS: [Mechanism; 5] = [
    Mechanism {
        id: "004-M1",
        paper: "servers with 10 Gbit/s and clients with 1 Gbit/s on a switch with 3 MB of buffer, then on one with 768 MB",
        here: "a router whose port towards each client has a rate and a queue of so many bytes, one 256 times the other (`lab::star`). **Not built:** one memory for several ports",
        shown: "Figs. 3 and 4",
        tests: &["a_node_of_a_router_has_an_address_of_its_own_and_all_its_ways_lead_there"],
    },
    Mechanism {
        id: "004-M2",
        paper: "reads of stripes from many servers at once (GPFS, Lustre)",
        here: "coded reads from eight of ten bricks at once, with and without a receive window (`--receive-window off`); GlusterFS's dispersed volume beside them",
        shown: "all figures",
        tests: &["a_shallow_port_is_read_through_in_small"],
    },
    Mechanism {
        id: "004-M3",
        paper: "none in software: the cure was another switch",
        here: "a receive window: what is on its way to a client never exceeds what its port can keep or to a server that has lost packets ([0032](../decisions/0032-receive-window.md))",
        shown: "Fig. 3; servers and buffers",
        tests: &[
            "a_window_finds_what_fits_into_a_shallow_port",
            "it_doubles_until_packets_are_lost_and_stays_below_what_lost_them",
        ],
    },
    Mechanism {
        id: "004-M4",
        paper: "diagnosis by the switch's counters and by changing it",
        here: "`shoal net probe` measures round trips, the rate, how many bricks may send at once, and how large a burst arrives whole; a mount shows its window, how often it was cut and what was lost (`shoal xray`, `.shoal/status`)",
        shown: "what the probe says; the tables' windows and timeouts",
        tests: &[
            "a_shallow_port_is_told_by_its_knee_and_its_bursts",
            "reads_through_a_narrow_window_are_right_while_bricks_die",
        ],
    },
    Mechanism {
        id: "004-M5",
        paper: "writes go from 1 to 10 Gbit/s, and do not suffer",
        here: "the same",
        shown: "Fig. 3",
        tests: &["a_shallow_port_is_read_through_in_small"],
    },
];

/// What is said below the table.
pub const NOTE: &str = "Names with underscores are tests: `./dev test` runs them.\n";
