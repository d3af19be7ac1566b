//! Bricks without codes: all share the stable stripes; each primary alone has what is not stable.

use std::rc::Rc;

use types::messages::Done;
use types::messages::brick::{
    BytesFound, FindBytes, FindStripes, ReadStripe, ReadUnit, Span, Stage, StripeBytes, StripesFound, Sync,
    UnitBytes, Write,
};
use types::messages::cluster::GroupConfig;
use types::messages::proxy::Proxy;
use types::messages::session::Role;
use types::wire::{Record, Served, StageTimes};
use types::{BrickId, Buf, Epoch, GroupId, Refusal, Seq, StripeKey, StripeSet};
use world::{Answer, Call, World, serve};

use super::{Cluster, Known, UnstableWrite, identity};

impl Cluster {
    /// Starts a brick, for the first time or again.
    pub fn start_brick(&self, brick: BrickId) {
        let world = self.sim.node(&format!("{brick}"));
        let (cluster, own) = (self.clone(), world.clone());
        world.spawn("test", async move {
            let listener = own.listen(&format!("{brick}:1")).await.expect("listens");
            let (known, handler_world) = (cluster.known.clone(), own.clone());
            drop(cluster);
            let handler = Rc::new(move |call: Call| {
                let (known, world) = (known.clone(), handler_world.clone());
                Box::pin(async move { answer(known, world, brick, call).await })
                    as world::LocalBoxFuture<'_, _>
            });
            serve(own, listener, identity(Role::Brick), handler).await;
        });
    }
}

async fn answer(
    known: Rc<std::cell::RefCell<Known>>,
    world: World,
    brick: BrickId,
    call: Call,
) -> Result<Answer, Refusal> {
    if known.borrow().mute.contains(&brick) {
        std::future::pending::<()>().await;
    }
    match call.kind {
        Write::KIND => {
            let write: Write = call.parse()?;
            let (key, stable) = (write.key, write.stable);
            let sync =
                Sync { client: write.client, upto: write.seq, groups: vec![(write.group, call.epoch)] };
            let (delay, done) = {
                let mut known = known.borrow_mut();
                known.count("Write");
                known.spans += write.spans.len();
                known.written += call.payload.len() as u64;
                *known.writing.entry(key).or_default() += 1;
                assert_eq!(known.writing[&key], 1, "one write of a stripe at a time");
                known.writing_max = known.writing_max.max(known.writing.len());
                let bytes = known.bytes_of(&write, &call.payload);
                let done = match bytes {
                    Some(bytes) => known.write(brick, call.epoch, write, bytes),
                    None => known.lose_staged(brick, call.epoch, &write),
                };
                (known.write_us, done)
            };
            if delay > 0 {
                world.sleep(delay).await;
            }
            known.borrow_mut().writing.remove(&key);
            if stable {
                done?;
                let delay = known.borrow().sync_us;
                world.sleep(delay).await;
                let answer_us = {
                    let mut known = known.borrow_mut();
                    known.stable_writes += 1;
                    known.sync(brick, &sync)?;
                    known.answer_us
                };
                world.sleep(answer_us).await;
                return Ok(Answer::new(&Done {}, Buf::empty()));
            }
            done.map(|()| Answer::new(&Done {}, Buf::empty()))
        }
        Stage::KIND => {
            let delay = known.borrow().stage_us;
            world.sleep(delay).await;
            known.borrow_mut().stage(brick, call.epoch, call.parse()?, &call.payload)
        }
        Sync::KIND => {
            let sync: Sync = call.parse()?;
            let delay = {
                let mut known = known.borrow_mut();
                known.count("Sync");
                known.sync_us
            };
            world.sleep(delay).await;
            known.borrow_mut().sync(brick, &sync)?;
            Ok(Answer::new(&Done {}, Buf::empty()))
        }
        ReadUnit::KIND => {
            let slow = known.borrow().slow_device.get(&brick).copied();
            if let Some(device_us) = slow {
                world.sleep(device_us).await;
            }
            let answer = known.borrow_mut().read_unit(brick, call.epoch, &call.parse()?)?;
            let Some(device_us) = slow.map(|us| us as u32) else { return Ok(answer) };
            let own = StageTimes { total_us: device_us, device_us, ..StageTimes::default() };
            Ok(answer.with_served(Served { own, other: None }))
        }
        FindBytes::KIND => known.borrow_mut().find_bytes(brick, call.epoch, &call.parse()?),
        FindStripes::KIND => known.borrow_mut().find_stripes(brick, &call.parse()?),
        ReadStripe::KIND => known.borrow_mut().read_stripe(brick, call.epoch, &call.parse()?),
        // These bricks have no connections to each other.
        Proxy::KIND => Err(Refusal::Unreached),
        _ => Err(Refusal::Unsupported),
    }
}

impl Known {
    pub(super) fn config(&self, group: GroupId, epoch: Epoch) -> Result<&GroupConfig, Refusal> {
        let (_, config) = self.map.group(group).ok_or(Refusal::Unknown)?;
        if config.epoch == epoch { Ok(config) } else { Err(Refusal::StaleEpoch) }
    }

    pub(super) fn check_primary(&self, brick: BrickId, group: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        let config = self.config(group, epoch)?;
        let code = self.map.volumes[0].geometry.code();
        let primary = config.primary(code).map(|slot| config.slots[slot].brick);
        if primary == Some(brick) { Ok(()) } else { Err(Refusal::NotPrimary) }
    }

    fn check_not_purged(&self, key: StripeKey) -> Result<(), Refusal> {
        if self.purged.contains(&key.object) { Err(Refusal::ObjectRemoved) } else { Ok(()) }
    }

    fn write(&mut self, brick: BrickId, epoch: Epoch, write: Write, bytes: Vec<u8>) -> Result<(), Refusal> {
        self.check_primary(brick, write.group, epoch)?;
        let len: usize = write.spans.iter().map(|span| span.len as usize).sum();
        assert!(write.spans.iter().all(|span| span.len > 0) && !write.spans.is_empty());
        assert!(write.spans.windows(2).all(|two| two[0].offset + two[0].len < two[1].offset));
        assert_eq!(bytes.len(), if write.zero { 0 } else { len });
        assert!(write.seq > write.acked, "a write that its writer knows as stable comes again");
        if !self.clients.contains(&write.client) {
            return Err(Refusal::Fenced);
        }
        if self.full || self.full_stripes.contains(&write.key.stripe) {
            return Err(Refusal::NoSpace);
        }
        if self.seen.insert((write.client, write.seq)) {
            self.held.entry(brick).or_default().push(UnstableWrite { write, bytes });
        }
        Ok(())
    }

    fn sync(&mut self, brick: BrickId, sync: &Sync) -> Result<(), Refusal> {
        for (group, epoch) in &sync.groups {
            self.check_primary(brick, *group, *epoch)?;
        }
        let groups: Vec<GroupId> = sync.groups.iter().map(|(group, _)| *group).collect();
        let of = |held: &UnstableWrite| {
            held.write.client == sync.client
                && held.write.seq <= sync.upto
                && groups.contains(&held.write.group)
        };
        let held = self.held.entry(brick).or_default();
        let (stable, rest): (Vec<UnstableWrite>, Vec<UnstableWrite>) =
            std::mem::take(held).into_iter().partition(of);
        *held = rest;
        for held in stable {
            let stripe = self.map.volumes[0].geometry.stripe();
            let order = self.order.entry((held.write.key, held.write.client)).or_default();
            assert!(
                order.last().is_none_or(|last| *last < held.write.seq),
                "the writes of a stripe are stable in order"
            );
            order.push(held.write.seq);
            apply(self.stripes.entry(held.write.key).or_insert_with(|| vec![0; stripe]), &held);
        }
        Ok(())
    }

    fn read_unit(&mut self, brick: BrickId, epoch: Epoch, read: &ReadUnit) -> Result<Answer, Refusal> {
        self.count("ReadUnit");
        self.check_not_purged(read.key)?;
        let slot = usize::from(read.slot);
        if self.config(read.group, epoch)?.slots[slot].brick != brick {
            return Err(Refusal::Unknown);
        }
        let unit = self.map.volumes[0].geometry.unit();
        let (from, to) = (slot * unit, (slot + 1) * unit);
        let undecided = self.held.values().flatten().any(|h| {
            let touches = |span: &Span| place(span).start < to && place(span).end > from;
            h.write.key == read.key && h.write.spans.iter().any(touches)
        });
        if undecided {
            return Err(Refusal::Pending);
        }
        let bytes = self.bytes(brick, read.key, from + read.offset as usize, read.len as usize);
        Ok(Answer::new(&UnitBytes { identity: Seq::NONE, crcs: Vec::new() }, Buf::copy_of(&bytes)))
    }

    fn read_stripe(&mut self, brick: BrickId, epoch: Epoch, read: &ReadStripe) -> Result<Answer, Refusal> {
        self.count("ReadStripe");
        self.check_not_purged(read.key)?;
        self.check_primary(brick, read.group, epoch)?;
        let bytes = self.bytes(brick, read.key, read.offset as usize, read.len as usize);
        Ok(Answer::new(&StripeBytes { decoded: 1 }, Buf::copy_of(&bytes)))
    }

    /// Stripes with bytes, each as a whole.
    fn find_bytes(&mut self, brick: BrickId, epoch: Epoch, find: &FindBytes) -> Result<Answer, Refusal> {
        self.count("FindBytes");
        self.check_primary(brick, find.group, epoch)?;
        let len = self.map.volumes[0].geometry.stripe();
        let mut ranges: Vec<Span> = Vec::new();
        for index in 0..find.stripes {
            let key = StripeKey { stripe: find.key.stripe + u64::from(index), ..find.key };
            let (offset, len) = (index * len as u32, len as u32);
            if self.bytes(brick, key, 0, len as usize).is_empty() {
                continue;
            }
            match ranges.last_mut().filter(|last| last.offset + last.len == offset) {
                Some(last) => last.len += len,
                None => ranges.push(Span { offset, len }),
            }
        }
        Ok(Answer::new(&BytesFound { ranges }, Buf::empty()))
    }

    /// Stripes that were ever written, of all groups.
    fn find_stripes(&mut self, brick: BrickId, find: &FindStripes) -> Result<Answer, Refusal> {
        self.count("FindStripes");
        for (group, epoch) in &find.groups {
            match find.primary {
                true => self.check_primary(brick, *group, *epoch)?,
                false => drop(self.config(*group, *epoch)?),
            }
        }
        let key = |stripe| StripeKey { object: find.object, stripe };
        let mut found = StripeSet::new(find.from..find.to);
        let stable = self.stripes.range(key(find.from)..key(find.to)).map(|(key, _)| *key);
        let held = self.held.get(&brick).into_iter().flatten().map(|held| held.write.key);
        stable.chain(held.filter(|key| key.object == find.object)).for_each(|key| found.put(key.stripe));
        Ok(Answer::new(&StripesFound { words: found.words(), upto: found.upto() }, Buf::empty()))
    }

    /// A range as the primary sees it, without the zeros at its end.
    fn bytes(&self, brick: BrickId, key: StripeKey, offset: usize, len: usize) -> Vec<u8> {
        let stripe = self.map.volumes[0].geometry.stripe();
        let mut bytes = self.stripes.get(&key).cloned().unwrap_or_else(|| vec![0; stripe]);
        let held = self.held.get(&brick).into_iter().flatten();
        held.filter(|h| h.write.key == key).for_each(|h| apply(&mut bytes, h));
        let mut bytes = bytes[offset..offset + len].to_vec();
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        bytes
    }
}

fn place(span: &Span) -> std::ops::Range<usize> {
    span.offset as usize..(span.offset + span.len) as usize
}

fn apply(stripe: &mut [u8], held: &UnstableWrite) {
    let mut bytes = held.bytes.as_slice();
    for span in &held.write.spans {
        let place = &mut stripe[place(span)];
        if held.write.zero {
            place.fill(0);
        } else {
            let (part, rest) = bytes.split_at(place.len());
            place.copy_from_slice(part);
            bytes = rest;
        }
    }
}
