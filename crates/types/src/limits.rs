//! Every limit of the system, with the relations between them checked at compile time.

/// The grain of checksums, allocation and decoding, in bytes.
pub const BLOCK: usize = 4096;
/// Smallest unit of a stripe, in bytes.
pub const UNIT_MIN: u32 = 4 << 10;
/// Largest unit of a stripe, in bytes.
pub const UNIT_MAX: u32 = 4 << 20;
/// Unit of a stripe unless the volume says otherwise, in bytes: 2 MiB of data at 8+2.
pub const UNIT_DEFAULT: u32 = 256 << 10;
/// Most data units in a stripe.
pub const K_MAX: u8 = 32;
/// Most parity units in a stripe.
pub const M_MAX: u8 = 6;
/// Most slots in a group; a set of slots fits a `u64` mask.
pub const SLOTS_MAX: usize = K_MAX as usize + M_MAX as usize;
/// Stripes per extent unless the volume says otherwise.
pub const EXTENT_STRIPES_DEFAULT: u32 = 64;
/// Most stripes per extent.
pub const EXTENT_STRIPES_MAX: u32 = 4096;
/// Stands for the stripes per extent where each file is one extent.
pub const EXTENT_WHOLE_FILE: u32 = u32::MAX;
/// Longest file name, in bytes (POSIX `NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes (`PATH_MAX` less its zero byte).
pub const SYMLINK_MAX: usize = 4095;
/// Longest name of a volume, in bytes.
pub const VOLUME_NAME_MAX: usize = 64;
/// Longest description of where a mount is, in bytes.
pub const PLACE_MAX: usize = 256;
/// Most addresses of one server: callers have a connection over each, from each of their threads.
pub const RAILS_MAX: usize = 8;
/// Longest address of a server, in bytes; several of one server together.
pub const ADDRESS_MAX: usize = 256;
/// Most hard links of one file.
pub const LINKS_MAX: u32 = 65_000;
/// Largest file, in bytes: 4 EiB. Linux allows larger files, but programs that exceed Linux's own limit get no
/// `EFBIG`.
pub const FILE_SIZE_MAX: u64 = 1 << 62;
/// Most files in one message about accesses.
pub const ACCESSES_MAX: usize = 512;
/// Most groups among which the service chooses that of a new file.
pub const NEAR_GROUPS_MAX: usize = 64;
/// Most names with which an open is asked for.
pub const OPEN_NAMES_MAX: usize = 8;
/// Largest record of a frame, in bytes: the largest cluster map and a report of all mounts fit.
pub const RECORD_MAX: usize = 4 << 20;
/// Largest cluster map, in bytes: volumes that would make it larger are refused.
pub const MAP_MAX: usize = 3 << 20;
/// Most mounts, and gates, of one cluster.
pub const MOUNTS_MAX: usize = 2048;
/// Most files that one mount has open, including closed files with unstable bytes. A mount reports all of them in one
/// record after the metadata service has restarted.
pub const OPEN_FILES_MAX: usize = 1 << 17;
/// Most files in one message about sizes.
pub const SIZE_UPDATES_MAX: usize = 1024;
/// Largest payload of a frame, in bytes. The data of the widest stripe in units of [`UNIT_MAX`] would need several
/// frames.
pub const PAYLOAD_MAX: usize = 32 << 20;
/// Largest answer to a probe of the network, in bytes.
pub const NET_PROBE_MAX: usize = 1 << 20;
/// Largest stripe (its data), in bytes.
pub const STRIPE_MAX: usize = 32 << 20;
/// Most ranges of one write.
pub const SPANS_MAX: usize = 512;
/// Most stripes in one message in which a slot reports unfolded stripes.
pub const UNFOLDED_MAX: usize = 256;
/// Most files of which a client has notes with bricks that the metadata service does not know. Of a client with more, slots forget
/// the oldest.
pub const NOTES_MAX: usize = 8;
/// Most objects in one purge request.
pub const PURGE_MAX: usize = 256;
/// Most records of metadata that a leader sends at a time.
pub const RECORDS_MAX: usize = 256;
/// Most groups in one question of a restored metadata service.
pub const RECOVER_MAX: usize = 1024;
/// Most groups of one volume.
pub const GROUPS_MAX: u32 = 4096;
/// Most tiers of a volume.
pub const TIERS_MAX: usize = 4;
/// Most shards of a cluster: their numbers have three bits of an id.
pub const SHARDS_MAX: usize = 8;
/// Most bricks that one reporter says it cannot reach.
pub const REPORTED_MAX: usize = 64;
/// Most bricks of one cluster.
pub const BRICKS_MAX: usize = 4096;
/// Most bytes of the text of a cluster's topology.
pub const TOPOLOGY_MAX: usize = 256 << 10;
/// Lease of a brick or a client, in microseconds. The arbiter puts a brick Out only after it has run out.
pub const LEASE_US: u64 = 3_000_000;
/// How much longer than the lease the arbiter waits. Clocks may drift apart by this much during a lease.
pub const LEASE_MARGIN_US: u64 = 500_000;
/// Time between the renewals of a lease, in microseconds.
pub const HEARTBEAT_US: u64 = LEASE_US / 3;
/// How long a request may take before its connection counts as broken, in microseconds.
pub const CALL_TIMEOUT_US: u64 = 10_000_000;

const _: () = assert!(UNIT_MIN as usize == BLOCK);
const _: () = assert!(UNIT_MAX as usize * 8 <= STRIPE_MAX && STRIPE_MAX <= PAYLOAD_MAX);
const _: () = assert!(MAP_MAX + MOUNTS_MAX * (PLACE_MAX + 64) + (64 << 10) <= RECORD_MAX);
const _: () = assert!(OPEN_FILES_MAX * 27 + NOTES_MAX * 40 + (64 << 10) <= RECORD_MAX);
// The windows of all clients in one group fit into a segment of the shortest journal, and into an answer.
const _: () = assert!(MOUNTS_MAX * (NOTES_MAX * 48 + 64) <= 1 << 20);
const _: () = assert!(SLOTS_MAX <= 64);
const _: () = assert!(HEARTBEAT_US * 2 < LEASE_US);
