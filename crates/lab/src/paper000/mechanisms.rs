//! The mechanisms of the paper's system, and what Shoal has in their place.

use crate::mechanism::Mechanism;

/// All mechanisms.
pub const MECHANISMS: [Mechanism; 9] = [
    Mechanism {
        id: "000-M1",
        paper: "a chain of translators, each with one function, which can be left out",
        here: "a stack of translators in the client (`client::translators`), with settings for a volume, a mount and an open file ([tuning](../guide/tune.md)). Only three of them can be turned off",
        shown: "",
        tests: &[
            "a_translator_of_ones_own_sees_every_request",
            "a_mount_has_settings_of_its_own",
            "settings_of_an_open_file_end_when_it_is_closed",
        ],
    },
    Mechanism {
        id: "000-M2",
        paper: "io-cache by pages of 128 KiB, read-ahead, write-behind in units of 128 KiB",
        here: "the same three, with pages of 4 KiB to 1 MiB; turned off and on while the volume is mounted; `auto` chooses for each file",
        shown: "Figs. 4 and 5",
        tests: &[
            "io_cache_answers_what_was_read_before",
            "read_ahead_fetches_before_it_is_asked",
            "write_behind_can_be_switched_and_sized",
            "auto_follows_the_work",
        ],
    },
    Mechanism {
        id: "000-M3",
        paper: "one thread of a client polls, and calls the servers one after the other; later several",
        here: "`shoal mount --threads`, four unless told otherwise; each has many requests on their way, also if it is the only one",
        shown: "Fig. 6; one loop, and several",
        tests: &["translators_are_turned_off_and_on_and_the_wire_says_what_they_fetch"],
    },
    Mechanism {
        id: "000-M4",
        paper: "a server process for each SSD, with 16 threads",
        here: "a process for each brick, with one thread unless `shoal brick --threads` says otherwise; no task keeps it while a disk works ([0003](../decisions/0003-runtime.md))",
        shown: "",
        tests: &["several_threads_keep_the_order_of_each_connection"],
    },
    Mechanism {
        id: "000-M5",
        paper: "distributed, replicated and striped volumes, placed by a hash without a metadata server",
        here: "code K+M: `1+0` distributes extents of all files, `1+M` replicates, `K+0` stripes; places come from a hash, names from a metadata service; `--type distribute` puts whole files on one brick",
        shown: "all figures (`1+0`)",
        tests: &[
            "translators_are_turned_off_and_on_and_the_wire_says_what_they_fetch",
            "a_distributed_file_is_whole_on_one_brick",
        ],
    },
    Mechanism {
        id: "000-M6",
        paper: "a client over FUSE",
        here: "`shoal mount`",
        shown: "all figures",
        tests: &["translators_are_turned_off_and_on_and_the_wire_says_what_they_fetch"],
    },
    Mechanism {
        id: "000-M7",
        paper: "fio: buffered reads by 16 jobs with a file each, 4, 64 and 128 KiB, random and sequential, for a fixed time",
        here: "the same reads (`lab::load::readers`), for less time and from smaller files; what is read is compared",
        shown: "all figures",
        tests: &[
            "each_block_comes_once_and_in_another_order_for_each_job",
            "all_clients_read_and_a_wrong_page_is_seen",
        ],
    },
    Mechanism {
        id: "000-M8",
        paper: "four ways to use SSDs: for all bricks (the paper's), as a cache of a server or of a client, for hot files",
        here: "all four: bricks on SSDs, `shoal brick --cache`, `shoal mount --cache-dir`, volumes with a hot and a cold tier ([caches](../guide/cache.md), [tiers](../guide/tiers.md)). The figures have the first",
        shown: "",
        tests: &[
            "a_killed_brick_finds_its_cache_again",
            "the_next_mount_reads_from_the_cache_and_nothing_old_or_damaged",
            "files_go_where_their_use_puts_them",
        ],
    },
    Mechanism {
        id: "000-M9",
        paper: "bytes asked for, and bytes on the wire (the paper gives only the first)",
        here: "a mount counts requests and bytes at each translator (`client::LayerCounters`), and `shoal xray` shows them with those of the wire and of the bricks' disks ([x-ray](../guide/xray.md))",
        shown: "the tables' wire per byte",
        tests: &["a_translator_of_ones_own_sees_every_request", "a_page_that_is_too_large_is_seen_and_named"],
    },
];

/// What is said below the table.
pub const NOTE: &str = "Names with underscores are tests: `./dev test` runs them.\n";
