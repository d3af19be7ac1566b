//! Records come from the leader, and go to the journal and to the engine.

use super::*;

impl Follower {
    pub(super) async fn append(&self, append: &Append, payload: Buf) -> Result<Appended, Refusal> {
        let is_plain_sign = self.core.borrow().is_plain_sign(append);
        if is_plain_sign {
            // A sign of life does not wait for a record that is being written.
            self.hear(append.term, &append.leader);
            if self.files.try_lock().is_some_and(|files| files.is_some())
                && self.core.borrow().shows_chosen(append)
            {
                self.tail_is_chosen();
            }
            return Ok(self.core.borrow().appended());
        }
        let mut files = self.files.lock().await;
        let files = files.as_mut().ok_or(Refusal::NotLeader)?;
        if !self.heeds(files, append.term, &append.leader).await? {
            return Ok(self.core.borrow().appended());
        }
        // The leader has counted what this server had.
        let has_less = self.core.borrow().has_less(append);
        if has_less {
            let noted = files.ballot.set_back().await;
            return Err(self.fail(noted.err().unwrap_or(MetaError::SetBack)));
        }
        let taking = self.core.borrow().take(append);
        let done = match taking {
            Taking::Nothing => Ok(()),
            Taking::Keep => self.keep(append, &payload).await,
            Taking::Take(taken) => self.take(files, taken, append, &payload).await,
        };
        done.map_err(|error| self.fail(error))?;
        Ok(self.core.borrow().appended())
    }

    /// Takes records, with one sync.
    async fn take(
        &self,
        files: &mut Files,
        taken: Taken,
        append: &Append,
        payload: &Buf,
    ) -> Result<(), MetaError> {
        let payloads = parts(append, payload)?;
        if taken.tail_is_chosen {
            self.tail_is_chosen();
        }
        let Some(from) = taken.from else {
            if taken.is_chosen {
                self.tail_is_chosen();
            }
            return Ok(());
        };
        let mut all = Vec::with_capacity(payloads.len() - from);
        for (sent, payload) in append.records.iter().zip(payloads).skip(from) {
            let writes = unpacked(&payload).ok_or(MetaError::Damaged)?;
            if term_of(&writes) != sent.position.term {
                return Err(MetaError::Damaged);
            }
            all.push((sent.position, payload, writes));
        }
        if taken.is_chosen && all.len() > 1 {
            let payloads: Vec<&Buf> = all.iter().map(|(_, payload, _)| payload).collect();
            let batch = self.with_store(|store| store.batch(&payloads))?;
            self.write(files, &batch).await?;
            for (position, payload, writes) in all {
                self.replace_tail(position, writes)?;
                self.tail_is_chosen();
                self.history.borrow_mut().push(position, payload);
            }
            return Ok(());
        }
        for (position, payload, writes) in all {
            let encoded = self.replace_tail(position, writes)?;
            self.write(files, &encoded).await?;
            self.history.borrow_mut().push(position, payload);
            if taken.is_chosen {
                self.tail_is_chosen();
            }
        }
        Ok(())
    }

    async fn write(&self, files: &mut Files, bytes: &Buf) -> Result<(), MetaError> {
        self.make_room(files, bytes.len()).await;
        let appended = files.journal.append_patiently(&self.world, bytes, || self.disk_is_full()).await;
        Ok(appended.map_err(EngineError::Journal)?)
    }

    /// Puts a record after the chosen ones. Returns its bytes for the journal.
    fn replace_tail(&self, position: RecordPosition, writes: Writes) -> Result<Buf, EngineError> {
        let members = members_in(&writes);
        let encoded = self.with_store(|store| store.replace_unchosen(writes))?;
        self.core.borrow_mut().records.replace_tail(position.term, members);
        Ok(encoded.bytes)
    }

    fn tail_is_chosen(&self) {
        self.core.borrow_mut().records.tail_is_chosen();
        self.store.borrow_mut().iter_mut().for_each(Store::first_is_chosen);
    }

    /// Switches to the other half of the journal if this one is full.
    async fn make_room(&self, files: &mut Files, len: usize) {
        if files.journal.fits(len) {
            return;
        }
        self.flushed().await;
        self.store.borrow_mut().iter_mut().for_each(Store::freeze);
        self.flush_wanted.notify();
        files.journal.switch_half();
    }

    /// Waits until the engine has what was on its way there.
    pub(super) async fn flushed(&self) {
        loop {
            let flush_done = self.flush_done.wait();
            if self.store.borrow().as_ref().is_none_or(|store| store.frozen().is_none()) {
                return;
            }
            flush_done.await;
        }
    }

    /// Commits full halves of the journal to the engine.
    pub(in crate::replicas) async fn flush(&self) -> MetaError {
        loop {
            let flush_wanted = self.flush_wanted.wait();
            let frozen = self.store.borrow().as_ref().and_then(Store::frozen);
            let Some((table, last)) = frozen else {
                flush_wanted.await;
                continue;
            };
            let committed = Arc::clone(&table);
            let commit = move |engine: &Engine| engine.advance(&keys::applied(), last, writes_of(&table));
            let full = || self.disk_is_full();
            if let Err(error) = self.engine.patiently(&self.world, commit, full).await {
                return error.into();
            }
            if self.is_full.replace(false) {
                tracing::info!("there is room on the disk of the metadata store again");
            }
            let flushed = match self.store.borrow_mut().as_mut() {
                Some(store) => store.take_flushed(&committed),
                None => Ok(None),
            };
            self.flush_done.notify();
            match flushed {
                Ok(table) => self.world.off_thread(move || drop(table)).await,
                Err(error) => return error.into(),
            }
        }
    }
}

/// The writes of the records that have come.
fn parts(append: &Append, payload: &Buf) -> Result<Vec<Buf>, MetaError> {
    if append.records.len() > RECORDS_MAX {
        return Err(MetaError::Damaged);
    }
    if let [_] = append.records.as_slice() {
        return Ok(vec![payload.clone()]);
    }
    let (mut parts, mut from, mut before) = (Vec::new(), 0, None);
    for SentRecord { position, len } in &append.records {
        let upto = from + *len as usize;
        let is_next = before.is_none_or(|before| position.number == before + 1);
        if upto > payload.len() || !is_next || position.number > append.chosen {
            return Err(MetaError::Damaged);
        }
        parts.push(payload.slice(from..upto));
        (from, before) = (upto, Some(position.number));
    }
    Ok(parts)
}
