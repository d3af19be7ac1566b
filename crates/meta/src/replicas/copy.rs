//! A server's copy of the store, and its start.

use std::cell::Cell;
use std::sync::Arc;

use types::messages::replica::{MetaMember, RecordPosition};
use types::{Buf, ClusterId};
use world::{Notify, World};

use super::agreement::{Members, Records};
use super::ballot::Ballot;
use super::history::History;
use crate::kv::{Engine, Journal, Store, Writes, unpacked};
use crate::records::{from_value, to_value};
use crate::{MetaError, keys};

/// The history has as much as the journal's halves together, and as much again: it must reach back to what the engine has.
const HISTORY_HALVES: u64 = 4;

/// A store that is open.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) journal: Option<Journal>,
    pub(crate) history: History,
}

/// What a server that keeps a copy has open.
pub(crate) struct Copied {
    pub(crate) store: Store,
    pub(crate) history: History,
    pub(crate) files: Files,
    /// The store is a part of another server's.
    pub(crate) is_incomplete: bool,
    /// Notified when the store has something for the journal.
    pub(crate) work: Notify,
}

/// What is written in the course of a request: by one of them at a time.
pub(crate) struct Files {
    pub(crate) journal: Journal,
    pub(crate) ballot: Ballot,
}

/// The file with the vote, beside the journal; `is_new`: the server may not have one yet.
pub(crate) async fn ballot(world: &World, engine: &Engine, is_new: bool) -> Result<Ballot, MetaError> {
    let journal = engine.journal().ok_or(MetaError::Damaged)?;
    Ballot::open(world, &format!("{journal}.vote"), is_new).await
}

/// As [`ballot`], of a server that begins: with a new id, whatever is there.
pub(crate) async fn renewed_ballot(world: &World, engine: &Engine) -> Result<Ballot, MetaError> {
    let journal = engine.journal().ok_or(MetaError::Damaged)?;
    Ballot::renewed(world, &format!("{journal}.vote")).await
}

/// The term of a record.
pub(crate) fn term_of(writes: &Writes) -> u64 {
    let value = writes.get(&keys::term()).and_then(Option::as_deref);
    value.and_then(|value| from_value(value).ok()).unwrap_or(0)
}

/// Where the records of a store end.
pub(crate) fn last_of(store: &Store) -> RecordPosition {
    let term = store.get(&keys::term(), |value| from_value::<u64>(value).unwrap_or(0));
    RecordPosition { number: store.last(), term: term.ok().and_then(|(term, _)| term).unwrap_or(0) }
}

/// The members, as the last record has them.
pub(crate) fn members_of(store: &Store) -> Vec<MetaMember> {
    let members =
        store.get(&keys::members(), |value| from_value::<Vec<MetaMember>>(value).unwrap_or_default());
    members.ok().and_then(|(members, _)| members).unwrap_or_default()
}

/// The members that a record names.
pub(crate) fn members_in(writes: &Writes) -> Option<Members> {
    let value = writes.get(&keys::members())?.as_deref();
    Some(value.and_then(|value| from_value::<Vec<MetaMember>>(value).ok()).unwrap_or_default().into())
}

/// The records of a store, and whom they make members.
pub(crate) fn records_of(store: &Store) -> Records {
    let members = store.get_chosen(&keys::members(), |value| from_value(value).unwrap_or_default());
    let members: Vec<MetaMember> = members.ok().flatten().unwrap_or_default();
    let term = store.get_chosen(&keys::term(), |value| from_value(value).unwrap_or(0));
    let chosen = RecordPosition { number: store.chosen(), term: term.ok().flatten().unwrap_or(0) };
    let mut records = Records::new(chosen, members.into());
    if store.last() > chosen.number {
        records.replace_tail(last_of(store).term, Some(members_of(store).into()));
    }
    records
}

/// Whether an engine is a part of another server's.
pub(crate) fn is_incomplete(engine: &Engine) -> Result<bool, MetaError> {
    Ok(engine.reader()?.get(&keys::incomplete(), |_| ())?.is_some())
}

/// Opens an engine's store and its journal, if it has one, and commits to the engine the records that it does not have yet. Of
/// a copy, the last one may still be replaced, and stays in the journal.
pub(crate) async fn open_store(
    world: &World,
    engine: Engine,
    cluster: ClusterId,
    memory_budget: u64,
    work: &Notify,
) -> Result<Opened, MetaError> {
    let Some(path) = engine.journal().map(str::to_owned) else {
        return Ok(Opened { store: Store::open(engine)?, journal: None, history: History::new(0) });
    };
    let applied = engine.reader()?.get(&keys::applied(), from_value::<u64>)?;
    let applied = applied.transpose().map_err(|_| MetaError::Damaged)?;
    let found = Journal::open(world, &path, cluster, applied, memory_budget, term_of).await;
    let mut found = found.map_err(|error| MetaError::Journal { path: path.clone(), error })?;
    let is_named = |writes: &Writes| writes.contains_key(&keys::members());
    let is_copy = engine.reader()?.get(&keys::members(), |_| ())?.is_some()
        || is_named(&found.writes)
        || found.tail.as_ref().is_some_and(is_named);
    let mut writes = found.writes;
    let (tail, settled) = if is_copy { (found.tail, None) } else { (None, found.tail) };
    // A torn record may have the next number, so that number is skipped. Copies all have the same numbers.
    let last = match (&tail, is_copy) {
        (Some(_), _) => found.last - 1,
        (None, true) => found.last,
        (None, false) => found.last + 1,
    };
    writes.extend(settled.unwrap_or_default());
    if !writes.is_empty() {
        tracing::info!(keys = writes.len(), "the metadata store gets the records that only its journal has");
    }
    let said = Cell::new(false);
    let full = || {
        if !said.replace(true) {
            tracing::error!("no space left on the disk of the metadata store: waits until there is room");
        }
    };
    let writes = Arc::new(writes);
    let commit = move |engine: &Engine| {
        let writes = writes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        engine.advance(&keys::applied(), last, writes)
    };
    engine.patiently(world, commit, full).await?;
    let mut store = Store::open(engine)?;
    store.attach_journal(found.salt, found.journal.half_len(), last + 1, work.clone());
    let mut history =
        History::new(usize::try_from(HISTORY_HALVES * found.journal.half_len()).unwrap_or(usize::MAX));
    if is_copy {
        let (first, records) = found.records;
        for (number, writes) in (first..).zip(records) {
            let term = unpacked(&writes).map_or(0, |writes| term_of(&writes));
            // The whole half stays in memory as long as a part of it does.
            history.push(RecordPosition { number, term }, Buf::from(writes.to_vec()));
        }
        if let Some(tail) = tail {
            // It must be there when its half is overwritten.
            let record = store.replace_unchosen(tail)?;
            let appended = found.journal.append_patiently(world, &record.bytes, full).await;
            appended.map_err(|error| MetaError::Journal { path, error: error.into() })?;
        }
    }
    Ok(Opened { store, journal: Some(found.journal), history })
}

impl Copied {
    /// What a server has that keeps a copy, or is to get one.
    pub(crate) async fn new(
        world: &World,
        engine: &Engine,
        opened: Option<Opened>,
        memory_budget: u64,
        work: Notify,
    ) -> Result<Copied, MetaError> {
        let is_incomplete = opened.is_none();
        let ballot = ballot(world, engine, is_incomplete).await?;
        let (store, journal, history) = match opened {
            Some(Opened { store, journal, history }) => (store, journal.ok_or(MetaError::Damaged)?, history),
            None => {
                let path = engine.journal().unwrap_or_default();
                let journal = Journal::open_anew(world, path, memory_budget).await;
                let journal = journal.map_err(|error| MetaError::Journal { path: path.to_owned(), error })?;
                let most = usize::try_from(HISTORY_HALVES * journal.half_len()).unwrap_or(usize::MAX);
                (Store::open(engine.clone())?, journal, History::new(most))
            }
        };
        Ok(Copied { store, history, files: Files { journal, ballot }, is_incomplete, work })
    }
}

/// A value for the members' key.
pub(crate) fn members_value(members: &[MetaMember]) -> Vec<u8> {
    to_value(&members.to_vec())
}
