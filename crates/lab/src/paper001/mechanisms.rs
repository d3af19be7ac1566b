//! The mechanisms of the paper's system, and what Shoal has in their place.

use crate::mechanism::Mechanism;

/// All mechanisms.
pub const MECHANISMS: [Mechanism; 9] = [
    Mechanism {
        id: "001-M1",
        paper: "any node's disk is a network block device, with several channels, fail-over and a journal of blocks on their way (ENBD)",
        here: "`shoal nbd` exports volumes at any node, over several connections; with a second gate a client goes on when the first one dies ([0021](../decisions/0021-an-nbd-server-of-our-own.md)). A brick may be on the disk of any NBD server: it connects again after a break and writes again what no flush had covered, from memory ([0023](../decisions/0023-remote-bricks.md), `world::remote`). **Not built:** several channels to one such disk, a journal that outlives the process: a flush is what lasts",
        shown: "",
        tests: &[
            "another_gate_takes_over_and_nothing_that_was_flushed_is_lost",
            "a_flush_covers_the_clients_of_all_threads",
            "nothing_answered_is_lost_whatever_befalls_the_server",
            "a_server_that_forgets_is_told_again",
        ],
    },
    Mechanism {
        id: "001-M2",
        paper: "software RAID-5 over 2 to 16 network block devices",
        here: "code K+1, as any other code, over bricks wherever their disks are; reads go on without one brick, and it is brought level, or replaced, while the volume is in use",
        shown: "Fig. 9; the small write, counted",
        tests: &[
            "raid_5_over_three_machines_that_run_nothing_of_ours",
            "a_brick_that_was_away_is_brought_level",
            "another_brick_takes_the_place_of_one_that_is_gone",
        ],
    },
    Mechanism {
        id: "001-M3",
        paper: "one address space over all nodes' disks (the meta disk), as a block device and as files",
        here: "volumes of files and block volumes share all bricks; each is the same at every node, by mount, NFS or NBD. Disks only, no other devices",
        shown: "",
        tests: &[
            "several_gates_and_a_mount_show_the_same_bytes",
            "two_gates_and_a_mount_see_the_same_bytes",
            "a_loop_device_over_a_mounted_disk",
        ],
    },
    Mechanism {
        id: "001-M4",
        paper: "NFS for computers outside the cluster, without software of its own there",
        here: "`shoal nfs`, version 3, at as many nodes as wanted ([0022](../decisions/0022-nfs-gate.md), `gates::nfs`)",
        shown: "Table 3, Fig. 8",
        tests: &[
            "the_tools_of_libnfs",
            "every_procedure",
            "nothing_is_lost_when_a_gate_is_killed_under_load",
            "the_kernels_nfs_client_beside_a_mount_and_killed_gates",
        ],
    },
    Mechanism {
        id: "001-M5",
        paper: "centralised (the paper's), and distributed, each node a client and a server (CDD)",
        here: "both, of the same programs: a brick's process runs where its disk is, or all of them run at one node, over NBD to the disks (`lab::cluster`)",
        shown: "Table 3, Figs. 8 and 9",
        tests: &["a_paper_is_measured_and_told_in_small"],
    },
    Mechanism {
        id: "001-M6",
        paper: "the pool grows and shrinks by nodes",
        here: "a brick joins a running cluster at any time; volumes made from then on use it, and it can take the place of one that is lost. A disk's size can grow. **Not built:** older volumes do not spread over new bricks, and no brick that is well can be taken out",
        shown: "",
        tests: &["another_brick_takes_the_place_of_one_that_is_gone", "a_disk_grows_in_use"],
    },
    Mechanism {
        id: "001-M7",
        paper: "four paths that can be measured: local, file service, block service, file service over remote disks",
        here: "the same four, and two more by a mount (`lab::paper001::service`)",
        shown: "Table 3",
        tests: &["a_paper_is_measured_and_told_in_small"],
    },
    Mechanism {
        id: "001-M8",
        paper: "Bonnie by character and by block of 16 KB, 500 MB, 10 times, averaged; 1 to 5 nodes at once; links of 10 and 100 Mbit/s",
        here: "the same items, numbers of nodes and links ([0024](../decisions/0024-a-lab-of-namespaces.md), `lab::load`); fewer bytes and repetitions, and the time ends when all is stable",
        shown: "Figs. 7 and 8",
        tests: &[
            "characters_go_by_pages_and_blocks_by_blocks",
            "a_wrong_byte_is_seen",
            "a_link_carries_its_rate_and_counts_it",
        ],
    },
    Mechanism {
        id: "001-M9",
        paper: "runs on unlike nodes, without a kernel module or a kernel of its own",
        here: "one program in user space; the kernel's own FUSE for a mount, any NBD or NFS client otherwise; a lender of a disk runs an NBD server of its choice. **Not shown:** nodes of unlike speed or size; every brick gets the same share, so the smallest one is full first",
        shown: "",
        tests: &[
            "raid_5_over_three_machines_that_run_nothing_of_ours",
            "file_systems_recover_from_a_power_cut",
            "the_kernels_nfs_client_beside_a_mount_and_killed_gates",
        ],
    },
];

/// What is said below the table.
pub const NOTE: &str = "Names with underscores are tests: `./dev test` runs them, those with a guest's kernel (`the_kernels_nfs_client_...`,\n\
                        `file_systems_recover_...`) only with `--full`.\n";
