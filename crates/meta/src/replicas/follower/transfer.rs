//! A whole store comes from the leader, part by part, and the records that come meanwhile are kept.

use super::*;

impl Follower {
    /// Takes a part of the whole store.
    pub(super) async fn install(&self, install: &Install, payload: &[u8]) -> Result<Appended, Refusal> {
        let mut files = self.files.lock().await;
        let files = files.as_mut().ok_or(Refusal::NotLeader)?;
        if !self.heeds(files, install.term, &install.leader).await? {
            return Ok(self.appended());
        }
        let is_same = self.installing.get() == Some((install.term, install.number));
        let goes_on = is_same && install.part == self.next_part.get();
        // An older store than its own would make this server forget what it has said it has.
        let is_next = install.number >= self.chosen() && (install.part == 0 || goes_on);
        if is_next {
            self.put_part(files, install, payload).await.map_err(|error| self.fail(error))?;
        }
        Ok(self.appended())
    }

    async fn put_part(&self, files: &mut Files, install: &Install, payload: &[u8]) -> Result<(), MetaError> {
        let pairs = unpacked(payload).ok_or(MetaError::Damaged)?;
        if install.part == 0 {
            tracing::info!(leader = install.leader.address, "gets the whole metadata store");
            self.installing.set(Some((install.term, install.number)));
            self.has_members.set(false);
            *self.kept.borrow_mut() = Kept { last: install.number, ..Kept::default() };
            let engine = self.engine.clone();
            self.world.off_thread(move || engine.begin_staging()).await?;
        }
        self.next_part.set(install.part + 1);
        self.has_members.set(self.has_members.get() || pairs.contains_key(&keys::members()));
        let last_key =
            || pairs.keys().next_back().cloned().unwrap_or_else(|| self.kept.borrow().upto.clone());
        let upto = (!install.is_last).then(last_key);
        self.stage_part(pairs, upto).await?;
        if install.is_last {
            self.installing.set(None);
            let last = self.kept.borrow().last;
            self.replace_store(files, install, last).await?;
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
            self.has_members.set(self.has_members.get() || writes.contains_key(&keys::members()));
            kept.bytes += upto - from;
            kept.writes.extend(writes);
            (from, last, kept.last) = (upto, position.number, position.number);
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
    ) -> Result<(), MetaError> {
        // What is on its way to the engine would come after it.
        self.flushed().await;
        let mut more = Writes::from([(keys::applied(), Some(to_value(&number)))]);
        // The leader was alone when it had this record. A store with members is never taken for that of a server that is alone;
        // a later record has the right ones.
        if !self.has_members.get() {
            let leader = members_value(std::slice::from_ref(&install.leader));
            more.insert(keys::members(), Some(leader));
        }
        let salt = match self.is_incomplete.get() {
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
            self.is_incomplete.set(false);
        } else {
            self.with_store(|store| store.replaced(number))?;
        }
        let mut history = self.history.borrow_mut();
        let next = history.get(number + 1).filter(|(position, _)| *position == self.last());
        history.clear();
        if let Some((position, writes)) = next {
            history.push(position, writes);
        }
        Ok(())
    }
}
