//! Bricks that keep units for a write that is to come, and check that data and parity belong together.

use types::messages::Done;
use types::messages::brick::{Stage, Write};
use types::{BrickId, Buf, Epoch, Refusal};
use world::Answer;

use super::{Known, UNIT};

impl Known {
    pub(super) fn stage(
        &mut self,
        brick: BrickId,
        epoch: Epoch,
        stage: Stage,
        payload: &[u8],
    ) -> Result<Answer, Refusal> {
        self.count("Stage");
        let config = self.config(stage.group, epoch)?;
        assert_eq!(config.slots[usize::from(stage.slot)].brick, brick, "the slot is this brick's");
        assert_eq!((payload.len(), stage.crcs.len()), (UNIT, UNIT / 4096), "a whole unit");
        if self.unwilling.contains(&brick) {
            return Err(Refusal::NoSpace);
        }
        self.staged.insert((stage.key, stage.client, stage.seq, stage.slot), payload.to_vec());
        Ok(Answer::new(&Done {}, Buf::empty()))
    }

    /// The bytes of a write, which may have come before; `None` if they are lost.
    pub(super) fn bytes_of(&mut self, write: &Write, payload: &[u8]) -> Option<Vec<u8>> {
        if !write.staged {
            return Some(payload.to_vec());
        }
        assert!(payload.is_empty() && !write.zero, "the bytes have come already");
        if std::mem::take(&mut self.forgetful) {
            return None;
        }
        let code = self.map.volumes[0].geometry.code();
        let unit = |slot: usize| self.staged.get(&(write.key, write.client, write.seq, slot as u8)).cloned();
        // What a brick that is Out would hold is what the others say it is.
        let there: Vec<(usize, Vec<u8>)> =
            (0..code.slots()).filter_map(|slot| Some((slot, unit(slot)?))).collect();
        let coder = layout::Coder::new(code);
        let sources: Vec<(usize, &[u8])> = there.iter().map(|(slot, unit)| (*slot, &unit[..])).collect();
        let mut data: Vec<Vec<u8>> = Vec::new();
        for slot in 0..code.k() {
            let mut bytes = vec![0; UNIT];
            match sources.iter().find(|(s, _)| *s == slot) {
                Some((_, unit)) => bytes.copy_from_slice(unit),
                None => coder.decode(&sources, &mut [(slot, &mut bytes)]).expect("enough units"),
            }
            data.push(bytes);
        }
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &unit[..]).collect();
        let mut parity = vec![vec![0; UNIT]; code.m()];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut unit[..]).collect();
        coder.encode(&inputs, &mut outputs);
        for (slot, unit) in there.iter().filter(|(slot, _)| *slot >= code.k()) {
            assert!(*unit == parity[slot - code.k()], "parity belongs to the data");
        }
        Some(data.concat())
    }

    /// A write is accepted, but its bytes are gone: a new epoch, and its writer must send it again.
    pub(super) fn lose_staged(&mut self, brick: BrickId, epoch: Epoch, write: &Write) -> Result<(), Refusal> {
        self.check_primary(brick, write.group, epoch)?;
        self.bump();
        Ok(())
    }
}
