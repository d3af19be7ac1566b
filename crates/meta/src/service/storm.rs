//! What the service has answered is there after a power cut, whole and in order: the power fails at random moments, the
//! journal is damaged, and the store is compared with a list of the changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use types::messages::session::Role;
use types::wire::Key;
use types::{ClusterId, Refusal};
use world::{Identity, SimOptions, Simulation, World};

use super::{MetaOptions, Service, Shared};
use crate::MetaError;
use crate::kv::{Engine, JournalError, Writes};
use crate::records::to_value;
use crate::state::Change;

const NODE: &str = "meta";
const DISK: &str = "journal";
const BLOCK: u64 = 4096;
/// The journal's halves are as short as they can be.
const MEMORY: u64 = 1 << 20;

fn options() -> MetaOptions {
    let identity =
        Identity { cluster: ClusterId([7; 16]), key: Key([1; 32]), role: Role::Meta, name: String::new() };
    MetaOptions {
        listen: "meta:1".into(),
        identity,
        memory_budget: MEMORY,
        first_shard: None,
        keeps_leaders: false,
    }
}

fn engine() -> Engine {
    let engine = Engine::memory_with_journal(DISK);
    crate::create_cluster(&engine, ClusterId([7; 16])).expect("empty");
    engine
}

/// A key that the service has no use for.
fn key(at: u64) -> Vec<u8> {
    [&[0x20][..], &at.to_be_bytes()].concat()
}

/// The key that every change sets to its number.
fn counter() -> Vec<u8> {
    vec![0x21]
}

/// All changes that were begun, in order, and how many of them are known to be done.
#[derive(Default)]
struct Told {
    changes: Vec<Writes>,
    known: usize,
}

impl Told {
    /// A change is known to be done.
    fn hear(&mut self, number: u64) {
        self.known = self.known.max(number as usize);
    }

    fn contents(&self, count: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        for writes in &self.changes[..count] {
            for (key, value) in writes {
                match value {
                    Some(value) => drop(all.insert(key.clone(), value.clone())),
                    None => drop(all.remove(key)),
                }
            }
        }
        all
    }
}

fn random_change(world: &World, number: u64) -> Writes {
    let mut writes = Writes::new();
    for _ in 0..world.random() % 4 {
        let len = (world.random() % 9000) as usize;
        let value = (!world.random().is_multiple_of(3)).then(|| vec![world.random() as u8; len]);
        writes.insert(key(world.random() % 100), value);
    }
    writes.insert(counter(), Some(to_value(&number)));
    writes
}

async fn write_on(shared: Rc<Shared>, told: Rc<RefCell<Told>>, world: World) {
    loop {
        let (inner, random) = (Rc::clone(&told), world.clone());
        let change = Change::idempotent(move |txn| {
            let mut told = inner.borrow_mut();
            let number = told.changes.len() as u64 + 1;
            let writes = random_change(&random, number);
            for (key, value) in writes.clone() {
                match value {
                    Some(value) => txn.put_bytes(key, value),
                    None => txn.remove(key),
                }
            }
            told.changes.push(writes);
            Ok(number)
        });
        let Ok(number) = shared.submit::<u64>(change).await else { return };
        told.borrow_mut().hear(number);
        world.sleep(world.random() % 3000).await;
    }
}

/// Reads learn of nothing that could still be lost.
async fn read_on(shared: Rc<Shared>, told: Rc<RefCell<Told>>, world: World) {
    loop {
        let seen = shared.state.borrow().read_with_record(|txn| txn.get::<u64>(&counter()));
        let Ok(number) = shared.when_durable(seen).await else { return };
        told.borrow_mut().hear(number.unwrap_or(0));
        world.sleep(world.random() % 1000).await;
    }
}

fn check(shared: &Shared, told: &mut Told) {
    let state = shared.state.borrow();
    let count = state.read(|txn| txn.get::<u64>(&counter())).expect("readable").unwrap_or(0) as usize;
    assert!(count >= told.known, "change {} was answered, {count} are there", told.known);
    let pairs = state.read(|txn| txn.range(&[0x20], &[0x22], usize::MAX)).expect("readable");
    assert!(pairs.into_iter().eq(told.contents(count)), "the contents are not those after change {count}");
    for at in 0..100 {
        let found = state.store.get(&key(at), <[u8]>::to_vec).expect("readable").0;
        assert_eq!(found, told.contents(count).remove(&key(at)));
    }
    told.changes.truncate(count);
    told.known = count;
}

fn storm(seed: u64) -> usize {
    let simulation = Simulation::new(seed, SimOptions::default());
    let (engine, told) = (engine(), Rc::new(RefCell::new(Told::default())));
    for life in 0..6 {
        let world = simulation.node(NODE);
        let (engine, on, told) = (engine.clone(), world.clone(), Rc::clone(&told));
        world.spawn("test", async move {
            let service = Service::start(on.clone(), engine, options()).await.expect("it starts");
            let shared = Rc::clone(&service.shared);
            check(&shared, &mut told.borrow_mut());
            for _ in 0..4 {
                on.spawn("test", write_on(Rc::clone(&shared), Rc::clone(&told), on.clone()));
            }
            on.spawn("test", read_on(Rc::clone(&shared), told, on.clone()));
            service.run().await;
        });
        let test = simulation.node("test");
        simulation.block_on("test", async move { test.sleep(test.random() % 1_500_000).await });
        match life % 3 {
            0 => simulation.kill(NODE),
            _ => simulation.power_cut(NODE),
        }
    }
    told.borrow().changes.len()
}

#[test]
fn power_cuts_lose_nothing_that_was_answered() {
    let seeds = std::env::var("SHOAL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let changes: usize = (0..seeds).map(storm).sum();
    assert!(changes > 100 * seeds as usize, "{changes} changes are no storm");
}

/// Starts the service, has `count` changes made of a block each, and stops.
fn write_some(simulation: &Simulation, engine: &Engine, count: u64) -> Result<(), MetaError> {
    let world = simulation.node(NODE);
    let (engine, on) = (engine.clone(), world.clone());
    let result = simulation.block_on(NODE, async move {
        let service = Service::start(on.clone(), engine, options()).await?;
        let shared = Rc::clone(&service.shared);
        on.spawn("metadata", async move {
            service.run().await;
        });
        for at in 0..count {
            let change = Change::idempotent(move |txn| {
                txn.put_bytes(key(at), vec![1; 1000]);
                Ok(at)
            });
            shared.submit::<u64>(change).await.expect("it works");
        }
        Ok(())
    });
    simulation.kill(NODE);
    result
}

fn trouble(result: Result<(), MetaError>) -> JournalError {
    match result {
        Err(MetaError::Journal { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_record_is_refused_and_a_torn_last_one_is_not() {
    for (damaged, refused) in [(2, true), (8, true), (9, false)] {
        let simulation = Simulation::new(damaged, SimOptions::default());
        let engine = engine();
        write_some(&simulation, &engine, 10).expect("a new journal");
        simulation.damage(NODE, DISK, BLOCK * (1 + damaged) + 100, 1);
        let again = write_some(&simulation, &engine, 0);
        if refused {
            let error = trouble(again);
            assert!(
                matches!(error, JournalError::Damaged { missing, found } if missing + 1 == found),
                "{error}"
            );
        } else {
            again.expect("nobody can tell that it was answered");
        }
    }
}

#[test]
fn only_its_own_journal_will_do() {
    let simulation = Simulation::new(3, SimOptions::default());
    // A store of before there were journals: it has no mark.
    let old = engine();
    write_some(&simulation, &old, 3).expect("it gets one");
    write_some(&simulation, &old, 3).expect("and keeps it");
    let other = Engine::memory_with_journal(DISK);
    crate::create_cluster(&other, ClusterId([8; 16])).expect("empty");
    let world = simulation.node(NODE);
    let found = simulation.block_on(NODE, async move {
        let identity = Identity { cluster: ClusterId([8; 16]), ..options().identity };
        Service::start(world, other, MetaOptions { identity, ..options() }).await.map(drop)
    });
    assert!(matches!(trouble(found), JournalError::WrongCluster(ClusterId(id)) if id == [7; 16]));
    simulation.kill(NODE);
    // The store is there, the journal is not.
    let elsewhere = Simulation::new(4, SimOptions::default());
    assert!(matches!(trouble(write_some(&elsewhere, &old, 0)), JournalError::Missing));
    // Its header is damaged.
    simulation.damage(NODE, DISK, 40, 1);
    assert!(matches!(trouble(write_some(&simulation, &old, 0)), JournalError::Unreadable));
}

#[test]
fn a_failing_journal_ends_the_service_unanswered() {
    let simulation = Simulation::new(5, SimOptions::default());
    let (world, engine) = (simulation.node(NODE), engine());
    let on = world.clone();
    let ended = simulation.block_on(NODE, async {
        let service = Service::start(on.clone(), engine.clone(), options()).await.expect("it starts");
        let shared = Rc::clone(&service.shared);
        simulation.fail_disk(NODE, DISK, true);
        let change = Change::idempotent(|txn| {
            txn.put_bytes(key(1), vec![1]);
            Ok(1u64)
        });
        let asked = async {
            let refused = shared.submit::<u64>(change).await;
            let seen = shared.state.borrow().read_with_record(|txn| txn.has(&key(1)));
            (refused, shared.when_durable(seen).await)
        };
        futures_util::future::join(service.run(), asked).await.1
    });
    assert_eq!(ended, (Err(Refusal::MetaFailed), Err(Refusal::MetaFailed)));
    simulation.kill(NODE);
    simulation.fail_disk(NODE, DISK, false);
    write_some(&simulation, &engine, 1).expect("a new start");
}
