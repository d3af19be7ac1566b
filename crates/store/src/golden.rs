//! The format on disk does not change unnoticed: everything that a brick writes is compared with a golden file. If it
//! differs, the number of the format must change too.
//!
//! `SHOAL_WRITE_GOLDEN=1` writes them anew.

use std::fmt::Write as _;

use types::limits::BLOCK;
use types::wire::{Codec, Forms, Record, at_head_of, check_document};
use types::{BrickId, Buf, ClusterId};
use world::sim::{SimOptions, Simulation};
use world::{Disk, World};

use crate::descriptor::Descriptor;
use crate::journal::Journal;
use crate::record::{
    Configured, Decided, Drop, Floor, Forget, PrepareRecord, Promise, Settle, Snapshot, Torn, Undrop, older,
};
use crate::superblock::Superblock;
use crate::table::{Change, PAGE, Table};

/// A line of hexadecimal digits, without the zeros at the end.
async fn line(lines: &mut String, name: &str, disk: &Disk, offset: u64, len: usize) {
    let bytes = disk.read(offset, len).await.expect("readable");
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    write!(lines, "{name} ").expect("writing to a string");
    bytes[..end].iter().for_each(|byte| write!(lines, "{byte:02x}").expect("writing to a string"));
    lines.push('\n');
}

/// Appends a sample record and a line with its bytes at `at`, then moves `at` to its end.
async fn record<R: Record>(lines: &mut String, journal: &Journal, disk: &Disk, n: &mut u8, at: &mut u64) {
    let payload = Buf::from(vec![0xee; 5]);
    let appended = journal.append(&R::sample(n), &payload);
    journal.read(appended.position).await.expect("written");
    let end = appended.position.offset + u64::from(appended.position.len);
    line(lines, &format!("record {} {}", R::KIND, R::NAME), disk, *at, (end - *at) as usize).await;
    *at = end;
}

async fn disk_as_text(world: &World) -> String {
    let mut lines = String::new();
    let superblock = Superblock::lay_out(ClusterId([0xc1; 16]), BrickId(3), [5; 16], 64 << 20, None)
        .expect("large enough");
    let disk = world.create_disk("disk", superblock.size).await.expect("a new disk");
    superblock.write(&disk).await.expect("written");
    line(&mut lines, "superblock", &disk, 0, BLOCK).await;
    line(&mut lines, "copy", &disk, BLOCK as u64, BLOCK).await;
    let step = 0x1111_1111;
    let journal = Journal::open(disk.clone(), &superblock, step, async |_| Ok(())).await.expect("empty");
    let (mut n, mut at) = (0, superblock.journal_start + BLOCK as u64);
    record::<older::Prepare>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Decided>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Promise>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<older::Settle>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<older::Snapshot>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Drop>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Torn>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    line(&mut lines, "segment", &disk, superblock.journal_start, BLOCK).await;
    let table = Table::open(disk.clone(), superblock.pages_start, superblock.pages, 0x2222_2222, 4);
    let table = table.await.expect("empty");
    let first = Descriptor::sample(&mut n);
    let second = Descriptor::sample(&mut n);
    let change =
        |descriptor: Descriptor| Change { key: descriptor.key, descriptor: Some(descriptor), is_new: true };
    table.write(vec![change(first), change(second)]).await.expect("room");
    // The first version lies in the second place.
    line(&mut lines, "page", &disk, superblock.pages_start + PAGE as u64, PAGE).await;
    record::<Forget>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Configured>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Floor>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Undrop>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<PrepareRecord>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Settle>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    record::<Snapshot>(&mut lines, &journal, &disk, &mut n, &mut at).await;
    lines
}

#[test]
fn the_document_of_formats_has_everything_on_disk() {
    let mut forms = Forms::default();
    let mut chapters = Vec::new();
    macro_rules! describe { ($($record:ident),*) => { $(chapters.push(forms.chapter::<$record>());)* }; }
    describe!(
        PrepareRecord,
        Decided,
        Promise,
        Settle,
        Snapshot,
        Drop,
        Torn,
        Forget,
        Configured,
        Floor,
        Undrop
    );
    chapters.sort();
    let journal: String = chapters.into_iter().map(|(_, chapter)| chapter).collect();
    Superblock::describe(&mut forms);
    Descriptor::describe(&mut forms);
    let disk = journal + &forms.chapters();
    let zones = at_head_of(include_str!("superblock.rs"));
    let frames = [include_str!("journal.rs"), include_str!("table.rs")].map(at_head_of).concat();
    check_document(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md"),
        &[("zones", &zones), ("journal and pages", &frames), ("disk", &disk)],
    );
}

#[test]
fn golden_bytes_of_the_disk() {
    let sim = Simulation::new(1, SimOptions::default());
    let world = sim.node("brick");
    let text = sim.block_on("brick", disk_as_text(&world));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/disk-v3.txt");
    if std::env::var_os("SHOAL_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file exists");
    for (expected, found) in golden.lines().zip(text.lines()) {
        assert_eq!(found, expected, "the form of something on disk changed: that needs a new format");
    }
    assert_eq!(golden.lines().count(), text.lines().count());
}
