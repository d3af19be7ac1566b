//! The product from outside: real processes, real disks, real mounts. Needs root and FUSE, and says so.
//!
//! | file | what |
//! |---|---|
//! | `fixture.rs` | a directory for one test; everything in it ends with the test, also if it panics |
//! | `script.rs`, `files.rs` | random file operations, on a mount and on a tmpfs, with the same outcome |
//! | `mounts.rs` | several mounts of one volume, and mounts that die |
//! | `exclusive.rs` | mounts that are the only ones of their volume, with the kernel's write-back cache |
//! | `posix.rs`, `posix.py` | what Linux' manual promises of files: removed ones, holes, times, handles, read-only mounts |
//! | `restarts.rs` | stops, crashes and restarts of the cluster |
//! | `damage.rs` | bytes at rest that rot, disks that are somebody else's, disks that are full |
//! | `syscalls.rs` | what POSIX and Linux say about each system call of files, case by case |
//! | `stress_ng.rs` | what stress-ng finds |
//! | `tree.rs` | one tree that many programs change at random |
//! | `turns.rs` | tasks that keep their daemon's thread for too long: every test fails for it |
//! | `descriptors.rs` | daemons that leak descriptors: every test fails for it |
//! | `waiting.rs` | requests that wait: for others, for signals, for `umount` |
//! | `broken_mounts.rs` | what status says of mounts that do not answer |
//! | `shell.rs` | somebody who runs commands while a test has files open |
//! | `nemesis.rs` | somebody who kills, stops and restarts daemons while a test works |
//! | `fio.rs`, `exerciser.rs` | verified writes, and one file against its model, under the nemesis |
//! | `history.rs` | two mounts at the same blocks: each block is a register |
//! | `credit.rs` | large answers through a narrow receive window, while bricks die |
//! | `hedge.rs` | a brick that answers late |
//! | `net_plan.rs` | networks without switches, built as planned in namespaces, with daemons that find the ways |
//! | `partitions.rs` | a brick that is cut off, both ways and one way |
//! | `alone.rs` | a mount that alone does not reach a brick |
//! | `nbd.rs` | block volumes and files over NBD, by the usual clients and by hostile ones |
//! | `nfs.rs`, `nfs_faults.rs` | a volume over NFS: by libnfs and by a client of ours (`nfs_client.rs`), with gates killed |
//! | `full.rs` | bricks that fill up under writers; full disks under the metadata service and under a brick |
//! | `strangers.rs` | gates, and those who should not have what they ask for |
//! | `without_key.rs`, `relay.rs` | daemons, and somebody without the key: idle connections, and relays between any two of them |
//! | `failed_writes.rs` | what a write that found no room leaves in its file, through each gate |
//! | `sizes.rs` | lengths that are only claimed, and files of many stripes |
//! | `verify.rs` | units that are compared |
//! | `volume_types.rs` | volumes by the names of types, and where their files are |
//! | `memory.rs` | what the daemons' memory comes to under load |
//! | `rejoin.rs` | bricks that come back, and others that take the place of lost ones |
//! | `remote.rs` | bricks on disks that other machines lend, and lenders that die |
//! | `lab.rs` | labs, with cables that are cut and bricks that are killed |
//! | `paper.rs` | the experiments of a paper, in small |
//! | `tune.rs` | settings of volumes, mounts and open files, changed while they are in use |
//! | `two_clusters.rs` | commands that name one of two clusters |
//! | `xray.rs` | what each layer of a mount reads and writes |
//! | `disk_cache.rs` | the cache of a mount on a local disk |
//! | `brick_cache.rs` | the cache of a brick on a faster disk |
//! | `why.rs` | what slow requests have waited for; what gates tell of themselves |
//! | `private.rs` | modes of files, files and locks of strangers, damaged stores and bricks |
//! | `refusals.rs` | wrong commands, wrong keys, wrong bytes |
//! | `guide.rs` | the commands of README.md and of docs/guide |
//! | `guest.rs` | a virtual machine as the client of gates, with `./dev test --full` only |
//! | `demo.rs` | the demo |

mod alone;
mod backup;
mod brick_cache;
mod broken_mounts;
mod credit;
mod damage;
mod demo;
mod descriptors;
mod direct;
mod disk_cache;
mod exclusive;
mod exerciser;
mod failed_writes;
mod files;
mod fio;
mod fixture;
mod full;
mod guest;
mod guide;
mod hedge;
mod history;
mod lab;
mod loop_device;
mod memory;
mod meta_check;
mod metas;
mod mounts;
mod nbd;
mod nemesis;
mod net_plan;
mod nfs;
mod nfs_client;
mod nfs_faults;
mod paper;
mod partitions;
mod posix;
mod private;
mod rails;
mod refusals;
mod rejoin;
mod relay;
mod remote;
mod restarts;
mod script;
mod shards;
mod shell;
mod sizes;
mod strangers;
mod stress_ng;
mod syscalls;
mod tiers;
mod tree;
mod tune;
mod turns;
mod two_clusters;
mod verify;
mod volume_types;
mod waiting;
mod why;
mod without_key;
mod xray;
