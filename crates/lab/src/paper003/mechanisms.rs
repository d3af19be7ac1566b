//! The mechanisms of the paper's system, and what Shoal has in their place.

use crate::mechanism::Mechanism;

/// All mechanisms.
pub const MECHANISMS: [Mechanism; 8] = [
    Mechanism {
        id: "003-M1",
        paper: "a scheduler of the kernel: SLQ, compared with CFQ, Deadline and NOOP",
        here: "a stage in user space in front of the device of a direct brick ([0037](../decisions/0037-direct-bricks.md)), with eight policies: both readings of SLQ, one that looks for its priority, noop, deadline, cfq, bfq and kyber. **Left out:** groups, classes real-time and idle, think times of cfq and bfq",
        shown: "table 3; the device",
        tests: &["slq_orders_by_size_around_its_priority", "deadline_goes_by_place_in_batches"],
    },
    Mechanism {
        id: "003-M2",
        paper: "parameters: dispatch priority 0 KB to 4 MB, largest request, reads to writes 2:1, expiry 500 ms and 5 s",
        here: "the same, the priority for reads and writes apart; all are set while the brick runs (`shoal brick tune`)",
        shown: "",
        tests: &[
            "a_priority_changes_while_requests_wait",
            "two_reads_go_for_each_write",
            "every_parameter_has_a_name_and_a_range",
        ],
    },
    Mechanism {
        id: "003-M3",
        paper: "merging at the back and in front, up to a limit of the device (LBA-bundle)",
        here: "the same, counted. **Not built:** finding the limit by itself. In a brick, requests are merged only in the order in which they go; each of the neighbours is a request of its own at the device",
        shown: "figures 7 and 8",
        tests: &[
            "requests_merge_at_both_ends_up_to_the_largest",
            "a_request_that_fills_a_gap_joins_its_neighbours",
        ],
    },
    Mechanism {
        id: "003-M4",
        paper: "a model of the device: 100 to 150 us whenever a request passes another 512 KB",
        here: "an SSD in virtual time, with a link, a buffer and channels ([scheduler-model.md](../scheduler-model.md)). **Not built:** a probe of real devices",
        shown: "figures 17 and 18",
        tests: &[
            "a_read_alone_takes_what_the_formula_says",
            "what_is_longer_than_the_buffer_takes_longer_as_the_paper_has_measured",
        ],
    },
    Mechanism {
        id: "003-M5",
        paper: "(not told) what is modelled is what runs",
        here: "one scheduler, plain state into which time is passed, in the model and in the brick ([0036](../decisions/0036-device-scheduler-policies.md))",
        shown: "table 3; the device",
        tests: &["the_same_setup_gives_the_same_report_and_another_seed_another_one"],
    },
    Mechanism {
        id: "003-M6",
        paper: "a queue by arrival: what has expired goes before everything",
        here: "expired requests of both directions go in the order of their deadlines; checked with random requests and every policy",
        shown: "",
        tests: &[
            "a_merged_request_keeps_the_earlier_deadline",
            "requests_that_are_joined_keep_the_earliest_deadline",
        ],
    },
    Mechanism {
        id: "003-M7",
        paper: "fio, the pattern of Intel's file server, Postmark, Blogbench, Dbench, Compilebench",
        here: "all six as seeded programs in the model, and as jobs of fio on the device. **Left out on the device:** names, and what the programs do besides I/O",
        shown: "table 3; the device",
        tests: &["sizes_are_those_of_the_paper", "scores_are_the_workloads_own"],
    },
    Mechanism {
        id: "003-M8",
        paper: "future work: a priority that follows the load, for reads and writes apart",
        here: "`slq-auto` compares windows with the present and with another priority, and takes the better one",
        shown: "slq-auto; the device",
        tests: &["slq_auto_leaves_a_bad_priority"],
    },
];

/// What is said below the table.
pub const NOTE: &str = "Names with underscores are tests: `./dev test` runs them.\n";
