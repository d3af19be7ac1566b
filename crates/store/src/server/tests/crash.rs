//! What was stable is there after a power cut, and every block comes back when files are purged: a random script runs
//! on one brick, which loses power or dies at each of its steps, again and again.

use std::collections::BTreeMap;

use super::*;

const UNIT: u32 = 16 << 10;
const STRIPES: u64 = 6;
const OBJECTS: usize = 4;
const STEPS: u64 = 120;

/// A stripe as the client knows it.
#[derive(Clone, Debug, Default)]
struct Known {
    stable: Vec<u8>,
    /// Writes sent since, in order.
    unstable: Vec<Patch>,
}

/// Everything that must or may be on the brick.
struct Model {
    client: Client,
    objects: Vec<ObjectId>,
    next_object: u64,
    stripes: BTreeMap<StripeKey, Known>,
    /// Objects whose purge was sent, and whether it was answered.
    purged: BTreeMap<ObjectId, bool>,
}

impl Model {
    fn new(client: Client) -> Model {
        let objects = (1..=OBJECTS as u64).map(ObjectId).collect();
        let next_object = OBJECTS as u64;
        Model { client, objects, next_object, stripes: BTreeMap::new(), purged: BTreeMap::new() }
    }

    fn any(&self, below: u64) -> u64 {
        self.client.world.random() % below
    }

    fn any_key(&self) -> StripeKey {
        let object = self.objects[self.any(OBJECTS as u64) as usize];
        StripeKey { object, stripe: self.any(STRIPES) }
    }

    /// One step of the script.
    async fn step(&mut self) {
        match self.any(100) {
            0..60 => self.write().await,
            60..75 => {
                self.client.sync().await;
                self.all_stable();
            }
            75..92 => {
                let key = self.any_key();
                self.check(key).await;
            }
            92..95 => self.purge().await,
            // Long enough for folds.
            95 => self.client.world.sleep(1_500_000).await,
            _ => self.client.world.sleep(self.any(20_000)).await,
        }
    }

    async fn write(&mut self) {
        let unit = u64::from(UNIT);
        let (offset, len) = match self.any(6) {
            0 | 1 => (0, unit),
            2 => (self.any(4) * BLOCK as u64, BLOCK as u64),
            3 => (0, 1 + self.any(unit)),
            _ => {
                let offset = self.any(unit);
                (offset, 1 + self.any((unit - offset).min(3000)))
            }
        };
        let fill = (self.any(8) > 0).then(|| self.any(256) as u8);
        let (key, patch) = (self.any_key(), self.client.patch(offset as usize, len as usize, fill));
        let known = self
            .stripes
            .entry(key)
            .or_insert_with(|| Known { stable: vec![0; unit as usize], unstable: Vec::new() });
        known.unstable.push(patch.clone());
        self.client.write(key, &patch).await.expect("there is room");
    }

    fn all_stable(&mut self) {
        for known in self.stripes.values_mut() {
            known.unstable.drain(..).for_each(|patch| patch.apply(&mut known.stable));
        }
    }

    async fn purge(&mut self) {
        let which = self.any(OBJECTS as u64) as usize;
        self.next_object += 1;
        let object = std::mem::replace(&mut self.objects[which], ObjectId(self.next_object));
        self.purged.insert(object, false);
        // A client syncs or forgets its writes to a file before the file is deleted.
        self.client.sync().await;
        self.all_stable();
        self.client.purge(object).await;
        self.purged.insert(object, true);
        self.stripes.retain(|key, _| key.object != object);
    }

    /// Reads a stripe, which must hold what is stable and the first few of the writes since, each whole. Returns what
    /// it holds.
    async fn check(&self, key: StripeKey) -> Vec<u8> {
        let found = self.client.read(key).await.expect("readable");
        let known = self.stripes.get(&key).cloned().unwrap_or_default();
        let mut expected = known.stable;
        expected.resize(UNIT as usize, 0);
        let mut matched = expected == found;
        for patch in &known.unstable {
            patch.apply(&mut expected);
            matched |= expected == found;
        }
        let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
        assert!(
            matched,
            "{key}: neither old nor new, from byte {differs:?} on; unstable {:?}",
            known.unstable
        );
        found
    }

    /// After a restart: everything is there, and the client goes on.
    async fn after_restart(&mut self) {
        // From here on the brick serves its new epoch.
        let absent = StripeKey { object: ObjectId(0), stripe: 0 };
        assert!(self.check(absent).await.iter().all(|byte| *byte == 0));
        for (object, answered) in std::mem::take(&mut self.purged) {
            let mut gone = true;
            for stripe in 0..STRIPES {
                let key = StripeKey { object, stripe };
                let found = match self.client.read(key).await {
                    Err(Refusal::ObjectRemoved) => vec![0],
                    found => found.expect("readable"),
                };
                let empty = self.stripes.get(&key).is_none_or(|k| k.stable.iter().all(|byte| *byte == 0));
                gone &= empty || found.iter().all(|byte| *byte == 0);
                if !found.iter().all(|byte| *byte == 0) {
                    self.check(key).await;
                }
            }
            assert!(gone || !answered, "{object} was purged");
            if !answered {
                // The metadata service repeats what was not answered. The client forgets what it had unstable.
                self.client.purge(object).await;
                self.stripes.retain(|key, _| key.object != object);
            }
        }
        let again = self.any(3) > 0;
        let keys: Vec<StripeKey> = self.stripes.keys().copied().collect();
        for key in keys {
            let found = self.check(key).await;
            let Some(known) = self.stripes.get_mut(&key) else { continue };
            if !again {
                // As if by another client: what was read stays.
                (known.stable, known.unstable) = (found, Vec::new());
            }
            for patch in &known.unstable {
                self.client.write(key, patch).await.expect("there is room");
            }
        }
        self.client.sync().await;
        self.all_stable();
    }

    /// Everything is stable, then purged: no block may be missing.
    async fn end(&mut self, capacity: u64) {
        let keys: Vec<StripeKey> = self.stripes.keys().copied().collect();
        for key in keys {
            self.check(key).await;
        }
        for object in std::mem::take(&mut self.objects) {
            self.client.purge(object).await;
        }
        self.client.world.sleep(100_000).await;
        assert_eq!(self.client.report().await.free, capacity, "every block has come back");
    }
}

/// Lives of one brick, each cut short at a step and some time behind its start, in microseconds.
fn run(seed: u64, lives: &[(u64, u64)]) {
    let bench = Bench::new(seed, small(512), UNIT);
    bench.start_brick();
    let driver = bench.sim.node("client");
    bench.sim.block_on("client", async {
        let mut model = Model::new(bench.client());
        let capacity = model.client.report().await.capacity;
        for (steps, after) in lives {
            for _ in 0..*steps {
                model.step().await;
            }
            let cut = async {
                loop {
                    model.step().await;
                }
            };
            driver.timeout(*after, cut).await;
            if !driver.random().is_multiple_of(4) {
                bench.sim.power_cut("brick")
            } else {
                bench.sim.kill("brick")
            }
            bench.start_brick();
            // Often the power fails again before the brick has come back.
            while driver.random().is_multiple_of(3) {
                driver.sleep(driver.random() % 30_000).await;
                bench.sim.power_cut("brick");
                bench.start_brick();
            }
            model.after_restart().await;
        }
        model.end(capacity).await;
    });
}

/// `SHOAL_SEEDS=N` makes it so many times as long, `SHOAL_SEED=S` begins with that seed.
#[test]
fn what_was_stable_survives_a_power_cut_at_every_step() {
    let times: u64 = std::env::var("SHOAL_SEEDS").map_or(2, |text| text.parse().expect("a number"));
    let first: u64 = std::env::var("SHOAL_SEED").map_or(0, |text| text.parse().expect("a number"));
    for seed in first..first + STEPS * times {
        let step = seed % STEPS;
        // Most near the operations that the step begins, some in the pauses where decisions, folds and lazy syncs run.
        let after = [100, 1_000, 5_000, 50_000, 2_000_000][seed as usize % 5];
        let after = 1 + seed.wrapping_mul(0x9e37_79b9) % after;
        run(seed, &[(step, after), (step % 20, after * 3), (1, after), (step % 7, 2 * after)]);
    }
}
