//! A damaged disk gives an error and never a wrong byte: superblocks, units and overlays are damaged on purpose, and
//! what the brick says is compared.

use super::*;

fn bench() -> Bench {
    Bench::new(7, small(512), 16 << 10)
}

impl Bench {
    /// What a start of the brick comes to.
    fn starts(&self) -> Result<(), BrickError> {
        let world = self.sim.node("brick");
        let started = self.sim.block_on("brick", async {
            let disk = world.open_disk("disk").await?;
            Brick::start(world.clone(), disk, None, self.options()).await.map(|_| ())
        });
        self.sim.kill("brick");
        started
    }

    /// Writes over the disk of the dead brick.
    fn scribble(&self, offset: u64, bytes: &[u8]) {
        let world = self.sim.node("brick");
        self.sim.block_on("brick", async {
            let disk = world.open_disk("disk").await.expect("nobody has it");
            disk.write(offset, vec![Buf::copy_of(bytes)]).await.expect("written");
            disk.sync().await.expect("synced");
        });
        self.sim.kill("brick");
    }

    /// Formats the disk of the dead brick.
    fn formats(&self) -> Result<Superblock, BrickError> {
        let world = self.sim.node("brick");
        let options = crate::FormatOptions { cluster: CLUSTER, brick: BRICK, journal_bytes: Some(8 << 20) };
        let made = self.sim.block_on("brick", async {
            let disk = world.open_disk("disk").await.expect("nobody has it");
            crate::format(&world, &disk, &options).await
        });
        self.sim.kill("brick");
        made
    }
}

#[test]
fn one_copy_of_the_superblock_is_enough() {
    for (offset, len) in [(0, 8), (8, 100), (BLOCK as u64, 8), (BLOCK as u64 + 8, 100)] {
        let bench = bench();
        bench.sim.damage("brick", "disk", offset, len);
        bench.starts().expect("the other copy is whole");
    }
}

/// Whatever is damaged, a brick is never taken for an empty disk, which could be formatted.
#[test]
fn without_a_superblock_a_brick_is_lost_but_not_formatted() {
    // Each copy: its magic or its body.
    for (first, second) in [(8, 8), (0, 8), (8, 0)] {
        let bench = bench();
        bench.sim.damage("brick", "disk", first, 8);
        bench.sim.damage("brick", "disk", BLOCK as u64 + second, 8);
        assert!(matches!(bench.starts(), Err(BrickError::SuperblockDamaged)), "{first} {second}");
        assert!(matches!(bench.formats(), Err(BrickError::SuperblockDamaged)), "{first} {second}");
    }
    let bench = bench();
    bench.scribble(0, &[0; 2 * BLOCK]);
    assert!(matches!(bench.starts(), Err(BrickError::NotABrick)));
    bench.formats().expect("an empty disk");
    assert!(matches!(bench.formats(), Err(BrickError::AlreadyABrick { brick: BRICK, cluster: CLUSTER })));
}

#[test]
fn a_brick_is_served_only_as_what_it_is() {
    for (change, expected) in [(0, "newer"), (1, "cluster"), (2, "brick"), (3, "older")] {
        let bench = bench();
        let world = bench.sim.node("brick");
        let mut superblock = bench.superblock.clone();
        match change {
            0 => superblock.format += 1,
            1 => superblock.cluster = ClusterId([9; 16]),
            3 => superblock.format -= 1,
            _ => superblock.brick = BrickId(77),
        }
        bench.sim.block_on("brick", async {
            let disk = world.open_disk("disk").await.expect("nobody has it");
            superblock.write(&disk).await.expect("written");
        });
        bench.sim.kill("brick");
        let found = match bench.starts() {
            Err(BrickError::NewerFormat { found: 4, known: 3 }) => "newer",
            Err(BrickError::OlderFormat { found: 2, known: 3 }) => "older",
            Err(BrickError::OtherCluster { found: ClusterId([9, ..]), wanted: CLUSTER }) => "cluster",
            Err(BrickError::OtherBrick { found: BrickId(77), wanted: BRICK }) => "brick",
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_disk_is_served_once() {
    let bench = bench();
    bench.start_brick();
    let (world, client) = (bench.sim.node("brick"), bench.client());
    bench.sim.block_on("client", async {
        client.report().await;
        let again = world.open_disk("disk").await;
        assert_eq!(again.err().map(|error| error.kind()), Some(std::io::ErrorKind::WouldBlock));
    });
}

/// A block that does not match its checksum is answered as damaged, whoever asks and however small the range; the
/// stripe's other blocks are readable, and a write of the whole stripe heals it.
#[test]
fn a_damaged_unit_is_never_read() {
    let bench = bench();
    bench.start_brick();
    let mut client = bench.client();
    let key = StripeKey { object: ObjectId(1), stripe: 0 };
    let unit = bench.geometry.unit();
    bench.sim.block_on("client", async {
        let whole = client.patch(0, unit, Some(3));
        client.write(key, &whole).await.expect("room");
        client.sync().await;
        assert_eq!(Some(client.read(key).await.expect("whole")), whole.bytes);
        bench.sim.damage("brick", "disk", bench.superblock.data_start + 5000, 1);
        assert_eq!(client.read(key).await, Err(Refusal::Corrupt));
        assert_eq!(client.read_stripe(key).await, Err(Refusal::TooFewLive), "no parity to decode from");
        let avoiding =
            ReadStripe { group: GROUP, key, offset: 0, len: bench.geometry.stripe() as u32, avoid: 1 };
        let asked = client.call(&avoiding, Buf::empty()).await.map(|_| ());
        assert_eq!(
            asked,
            Err(Refusal::TooFewLive),
            "what is missing may come back, so the read is not given up"
        );
        let read = |offset, len| ReadUnit { group: GROUP, key, slot: 0, offset, len };
        let (_, sound) = client.call(&read(0, 4096), Buf::empty()).await.expect("its first block is sound");
        assert_eq!(Some(&sound[..]), whole.bytes.as_ref().map(|bytes| &bytes[..4096]));
        let near = client.call(&read(4096, 1), Buf::empty()).await.map(|_| ());
        assert_eq!(near, Err(Refusal::Corrupt), "a block is checked as a whole");
        // An overlay covers part of the damage only.
        let small = client.patch(4900, 200, Some(4));
        client.write(key, &small).await.expect("room");
        client.sync().await;
        client.world.sleep(100_000).await;
        assert_eq!(client.read(key).await, Err(Refusal::Corrupt));
        assert!(client.report().await.damaged >= 4);
        let again = client.patch(0, unit, Some(5));
        client.write(key, &again).await.expect("room");
        client.sync().await;
        assert_eq!(Some(client.read(key).await.expect("healed")), again.bytes);
    });
}

/// Overlays lie in the journal: they are checked too.
#[test]
fn a_damaged_overlay_is_never_read() {
    let bench = bench();
    bench.start_brick();
    let mut client = bench.client();
    let key = StripeKey { object: ObjectId(1), stripe: 0 };
    bench.sim.block_on("client", async {
        let small = client.patch(100, 3000, Some(4));
        client.write(key, &small).await.expect("room");
        client.sync().await;
        client.read(key).await.expect("sound");
        let journal = bench.superblock.journal_start + BLOCK as u64;
        bench.sim.damage("brick", "disk", journal + 1500, 512);
        assert_eq!(client.read(key).await, Err(Refusal::Corrupt));
    });
}

/// What a disk held as a brick of an earlier time is nothing to the brick that it is formatted as.
#[test]
fn a_disk_formatted_anew_is_empty() {
    let bench = bench();
    let laid_out = Superblock::lay_out(CLUSTER, BRICK, [5; 16], bench.superblock.size, Some(8 << 20));
    bench.scribble(0, &[0; 2 * BLOCK]);
    let first = bench.formats().expect("an empty disk");
    assert_eq!(first.data_start, laid_out.expect("large enough").data_start);
    for life in 0..2u8 {
        bench.start_brick();
        let mut client = bench.client();
        bench.sim.block_on("client", async {
            for stripe in 0..600 {
                let key = StripeKey { object: ObjectId(1), stripe };
                if stripe % 50 == 0 {
                    assert!(client.read(key).await.expect("readable").iter().all(|byte| *byte == 0));
                }
                let patch = client.patch(0, 16 << 10, Some(life));
                client.write(key, &patch).await.expect("room");
            }
            client.sync().await;
            // Until its descriptors are at rest: there are more units than stay in RAM.
            client.world.sleep(1_000_000).await;
        });
        bench.sim.kill("brick");
        bench.scribble(0, &[0; 2 * BLOCK]);
        bench.sim.forget_claims();
        bench.formats().expect("a wiped disk");
    }
}
