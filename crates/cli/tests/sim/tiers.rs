//! Files move between the two tiers of a volume while their clients write them, bricks die and the mover is killed at
//! any moment. What is in a file never depends on where it lies.

use client::{ClientError, Encode};
use mover::{MoveOutcome, Mover};
use types::messages::names::FileKind;
use types::{InodeId, Refusal};
use world::World;

use crate::cluster::Client;
use crate::storm::Storm;

/// The mover's machine.
const NODE: &str = "mover";
/// How long a move may take before the mover is taken for stuck and killed, in microseconds.
const STUCK_US: u64 = 30_000_000;
/// Most names that the mover looks at.
const NAMES: u32 = 64;

impl Storm<'_> {
    /// A mover at work until the faults are over, and after each of its ends another one.
    pub(crate) async fn move_files(&self, driver: &World) {
        if self.config.tier.is_none() {
            return;
        }
        while !self.faults_are_over() {
            let joined = Client::mount(self.cluster.sim.node(NODE), 1 << 20, Encode::Auto);
            let Some(client) = driver.timeout(STUCK_US, joined).await else { break };
            while !self.faults_are_over() {
                driver.sleep(self.prng.below(200_000)).await;
                let patience = if self.prng.below(4) == 0 { self.prng.below(400_000) } else { STUCK_US };
                match driver.timeout(patience, self.move_one(&client)).await {
                    Some(Ok(MoveOutcome::Moved { .. })) => self.tally.borrow_mut().moved += 1,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::debug!(%error, "a file was not moved"),
                    None => {
                        self.tally.borrow_mut().movers_killed += 1;
                        break;
                    }
                }
            }
            self.cluster.sim.kill(NODE);
        }
    }

    /// Moves a file to the tier where it is not.
    async fn move_one(&self, client: &Client) -> Result<MoveOutcome, ClientError> {
        let listed = client.session.readdir(InodeId::ROOT, 0, NAMES).await?;
        let files: Vec<_> = listed.entries.iter().filter(|entry| entry.attr.kind == FileKind::File).collect();
        let Some(entry) = files.get(self.prng.below(files.len() as u64 + 1) as usize) else {
            return Ok(MoveOutcome::Gone);
        };
        let mut mover = Mover::new(client.session.clone(), client.world.clone(), None);
        mover.move_file(entry.attr.inode, 1 - entry.attr.object.tier(), &mut |_| ()).await
    }

    /// At rest, every file that nobody has open for writing can be moved.
    pub(crate) async fn move_all(&self, driver: &World) {
        if self.config.tier.is_none() || self.inconclusive.get() {
            return;
        }
        self.cluster.sim.kill(NODE);
        let client = Client::mount(self.cluster.sim.node(NODE), 1 << 20, Encode::Auto).await;
        if let Err(error) = self.try_move_all(&client).await {
            let hopeless =
                self.exceeds_tolerance(driver).await || error == ClientError::Refused(Refusal::Fenced);
            assert!(hopeless, "seed {}: files cannot be moved at rest: {error}", self.seed);
        }
        let left = client.mount.leave(&client.world).await;
        self.must(left.map_err(|error| format!("a mover cannot leave: {error}")));
    }

    async fn try_move_all(&self, client: &Client) -> Result<(), ClientError> {
        let mut mover = Mover::new(client.session.clone(), client.world.clone(), None);
        for entry in client.session.readdir(InodeId::ROOT, 0, NAMES).await?.entries {
            let tier = 1 - entry.attr.object.tier();
            let outcome = mover.move_file(entry.attr.inode, tier, &mut |_| ()).await?;
            if let MoveOutcome::Moved { .. } = outcome {
                let now = client.session.getattr(entry.attr.inode).await?;
                assert_eq!(now.object.tier(), tier, "seed {}: where a moved file lies", self.seed);
                assert_eq!(
                    (now.size, now.mtime, now.links),
                    (entry.attr.size, entry.attr.mtime, entry.attr.links),
                    "seed {}: a moved file is the same file",
                    self.seed
                );
                self.tally.borrow_mut().moved += 1;
            }
        }
        Ok(())
    }
}
