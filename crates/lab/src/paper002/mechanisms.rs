//! The mechanisms of the paper's system, and what Shoal has in their place.

use crate::mechanism::Mechanism;

/// All mechanisms.
pub const MECHANISMS: [Mechanism; 11] = [
    Mechanism {
        id: "002-M1",
        paper: "Reed-Solomon codes by SIMD (ISA-L): encode and decode, 8+2 and others",
        here: "codes of up to 32+6 by the fastest kernels of the CPU, chosen when the program starts, checked against a scalar implementation; updates of parities by differences ([0001](../decisions/0001-erasure-code-body.md)); `shoal code bench`",
        shown: "Fig. 2",
        tests: &["kernels_of_older_cpus_make_the_same_bytes", "every_code_bears_m_losses"],
    },
    Mechanism {
        id: "002-M2",
        paper: "stripe units of 512 bytes, so that each page is a whole stripe",
        here: "units from 4 KiB to 4 MiB ([0016](../decisions/0016-unit-size.md)). **Not built:** units below 4 KiB. Checksums, allocation and decoding have blocks of 4 KiB, and ten messages for each page would cost more than what they save: a small write goes to a log instead, and is folded later ([0005](../decisions/0005-folding-rewrites-what-was-touched.md))",
        shown: "who encodes: 4 KiB; Figs. 8 and 9: 64 KiB",
        tests: &["volumes_that_cannot_be_are_refused_with_the_reason"],
    },
    Mechanism {
        id: "002-M3",
        paper: "a primary that encodes and scatters, writes behind; the client keeps what is not durable yet",
        here: "the same with `--encode primary`; the primary orders writes also where the client encodes ([0009](../decisions/0009-client-encodes-whole-stripes.md)). Reads gather at the client: through a primary each byte would be on cables twice",
        shown: "Figs. 5 and 6; who encodes",
        tests: &["a_silent_brick_sends_the_stripe_through_the_primary"],
    },
    Mechanism {
        id: "002-M4",
        paper: "the client sends again to another primary if one fails",
        here: "the same, each write once: a number for each, and a take-over that asks all slots",
        shown: "",
        tests: &["a_dead_primary_is_followed_and_reads_go_degraded"],
    },
    Mechanism {
        id: "002-M5",
        paper: "a torus whose nodes forward, with a front tier on a switch",
        here: "shapes, distances and routes (`layout::topology`); nodes of the lab forward as the kernel does. Client and back tier are those of the picture",
        shown: "Fig. 1; Figs. 5 and 6",
        tests: &["a_client_in_the_torus_has_four_bricks_beside_it_and_none_is_far"],
    },
    Mechanism {
        id: "002-M6",
        paper: "primaries and placement by hops; direct transfer mixed with pipelined",
        here: "by hand here: with ten bricks and ten units a stripe is on all of them, and only who is the primary can be chosen. **Not built into this experiment:** the cluster's own choice by hops, transfer along a chain",
        shown: "Figs. 5 and 6",
        tests: &["costs_of_a_torus_are_those_of_its_distances"],
    },
    Mechanism {
        id: "002-M7",
        paper: "several ports of a node in parallel",
        here: "routes by the kernel: a client in the torus sends through four ports at once, because its bricks are behind all of them",
        shown: "Figs. 3, 8 and 9: the torus",
        tests: &["all_parts_arrive_and_are_told"],
    },
    Mechanism {
        id: "002-M8",
        paper: "GlusterFS and Ceph, coded and with three copies",
        here: "GlusterFS 8+2 and with three copies, on the same cables; who encodes can be chosen in Shoal. **Not built:** Ceph: its daemons want more memory than there is",
        shown: "Figs. 8 and 9; who encodes",
        tests: &["every_kind_of_volume_has_its_words"],
    },
    Mechanism {
        id: "002-M9",
        paper: "no metadata path in what was measured",
        here: "a metadata service, used by each open, size and time of a file; it is in all figures",
        shown: "Figs. 8 and 9",
        tests: &["a_torus_is_measured_in_small"],
    },
    Mechanism {
        id: "002-M10",
        paper: "reads and repair after failures",
        here: "degraded reads, writes and repair in the background. Not in this experiment",
        shown: "",
        tests: &["every_stripe_is_compared_also_without_a_brick"],
    },
    Mechanism {
        id: "002-M11",
        paper: "IOzone: sizes of records, 1 and 10 threads, in order and at random",
        here: "the same by a load of the lab (`lab::load::records`), whose times of writes end with `fsync`",
        shown: "Figs. 8 and 9",
        tests: &["each_task_goes_through_its_file_once"],
    },
];

/// What is said below the table.
pub const NOTE: &str = "Names with underscores are tests: `./dev test` runs them.\n";
