//! A whole store comes from the leader, part by part, and the records that come meanwhile are kept.

use super::*;

impl Follower {
    /// Takes a part of the whole store.
    pub(super) async fn install(&self, install: &Install, payload: &[u8]) -> Result<Appended, Refusal> {
        let mut files = self.files.lock().await;
        let files = files.as_mut().ok_or(Refusal::NotLeader)?;
        if !self.heeds(files, install.term, &install.leader).await? {
            return Ok(self.core.borrow().appended());
        }
        let is_next = self.core.borrow().is_next_part(install);
        if is_next {
            self.put_part(files, install, payload).await.map_err(|error| self.fail(error))?;
        }
        Ok(self.core.borrow().appended())
    }

    async fn put_part(&self, files: &mut Files, install: &Install, payload: &[u8]) -> Result<(), MetaError> {
        let pairs = unpacked(payload).ok_or(MetaError::Damaged)?;
        if install.part == 0 {
            tracing::info!(leader = install.leader.address, "gets the whole metadata store");
            *self.kept.borrow_mut() = Kept::default();
            let engine = self.engine.clone();
            self.world.off_thread(move || engine.begin_staging()).await?;
        }
        self.core.borrow_mut().takes_part(install, pairs.contains_key(&keys::members()));
        let last_key =
            || pairs.keys().next_back().cloned().unwrap_or_else(|| self.kept.borrow().upto.clone());
        let upto = (!install.is_last).then(last_key);
        self.stage_part(pairs, upto).await?;
        if !install.is_last {
            return Ok(());
        }
        let arrived = self.core.borrow_mut().has_arrived();
        if let Some((last, has_members)) = arrived {
            self.replace_store(files, install, last, has_members).await?;
            tracing::info!(record = last, "has the whole metadata store");
        }
        Ok(())
    }

    /// Keeps records that the store which comes does not have. All of them are chosen.
    pub(super) async fn keep(&self, append: &Append, payload: &Buf) -> Result<(), MetaError> {
        let (mut from, mut last) = (0, append.previous.number);
        for SentRecord { position, len } in &append.records {
            let upto = from + *len as usize;
            if upto > payload.len() || position.number != last + 1 || position.number > append.chosen {
                return Err(MetaError::Damaged);
            }
            let writes = unpacked(&payload[from..upto]).ok_or(MetaError::Damaged)?;
            let mut kept = self.kept.borrow_mut();
            self.core.borrow_mut().keeps(position.number, writes.contains_key(&keys::members()));
            kept.bytes += upto - from;
            kept.writes.extend(writes);
            (from, last) = (upto, position.number);
        }
        if self.kept.borrow().bytes >= KEPT_BYTES {
            let upto = self.kept.borrow().upto.clone();
            self.stage_part(Writes::new(), Some(upto)).await?;
        }
        Ok(())
    }

    /// Brings a part, up to this key, to the engine, with what was kept.
    async fn stage_part(&self, pairs: Writes, upto: Option<Vec<u8>>) -> Result<(), MetaError> {
        let since = {
            let mut kept = self.kept.borrow_mut();
            if let Some(upto) = &upto {
                kept.upto.clone_from(upto);
            }
            kept.bytes = 0;
            std::mem::take(&mut kept.writes)
        };
        let engine = self.engine.clone();
        let stage = move || engine.stage_part(&pairs, upto.as_deref(), &since);
        Ok(self.world.off_thread(stage).await?)
    }

    /// Another server's store has come, and takes the place of this server's. Until then this one has what it has said it has.
    async fn replace_store(
        &self,
        files: &mut Files,
        install: &Install,
        number: u64,
        has_members: bool,
    ) -> Result<(), MetaError> {
        // What is on its way to the engine would come after it.
        self.flushed().await;
        let mut more = Writes::from([(keys::applied(), Some(to_value(&number)))]);
        // The leader was alone when it had this record. A store with members is never taken for that of a server that is alone;
        // a later record has the right ones.
        if !has_members {
            let leader = members_value(std::slice::from_ref(&install.leader));
            more.insert(keys::members(), Some(leader));
        }
        let is_incomplete = self.core.borrow().is_incomplete;
        let salt = match is_incomplete {
            true => {
                let path = self.engine.journal().unwrap_or_default().to_owned();
                let salt = files.journal.renew(&self.world, self.cluster).await;
                Some(salt.map_err(|error| MetaError::Journal { path, error })?)
            }
            // What the journal has is older, or the record after this store.
            false => None,
        };
        let engine = self.engine.clone();
        self.world.off_thread(move || engine.replace_by_staged(&more)).await?;
        if let Some(salt) = salt {
            let mut store = Store::open(self.engine.clone())?;
            store.attach_journal(salt, files.journal.half_len(), number + 1, self.work.clone());
            *self.store.borrow_mut() = Some(store);
        } else {
            self.with_store(|store| store.replaced(number))?;
        }
        let records = self.with_store(|store| Ok(records_of(store)))?;
        let mut core = self.core.borrow_mut();
        core.installed(records.chosen, records.chosen_members.clone());
        debug_assert_eq!(core.records, records, "the store has the records of which the core knows");
        let mut history = self.history.borrow_mut();
        let next = history.get(number + 1).filter(|(position, _)| *position == core.last());
        history.clear();
        if let Some((position, writes)) = next {
            history.push(position, writes);
        }
        Ok(())
    }
}
