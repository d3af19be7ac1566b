//! Values by number. Numbers are used again, so memory is that of the most values there ever were.

/// No number.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Slots<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn put(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.values[slot as usize] = Some(value);
                slot
            }
            None => {
                self.values.push(Some(value));
                (self.values.len() - 1) as u32
            }
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.values.get(slot as usize).and_then(Option::as_ref)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(super) fn take(&mut self, slot: u32) -> Option<T> {
        let value = self.values.get_mut(slot as usize).and_then(Option::take);
        if value.is_some() {
            self.free.push(slot);
        }
        value
    }

    /// The value of a number that is in use.
    pub(super) fn known(&self, slot: u32) -> &T {
        self.get(slot).expect("a slot that is referred to is in use")
    }

    /// The same, to be changed.
    pub(super) fn known_mut(&mut self, slot: u32) -> &mut T {
        self.get_mut(slot).expect("a slot that is referred to is in use")
    }
}
