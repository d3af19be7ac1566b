//! The handles of a control file in `.shoal`: each has a state of its own, from its open to its close.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The open handles of a control file, by number.
#[derive(Default)]
pub(super) struct ControlHandles<T> {
    opened: AtomicU64,
    open: Mutex<BTreeMap<u64, T>>,
}

impl<T: Default> ControlHandles<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle. Numbers are not used again.
    pub(super) fn open(&self) -> u64 {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, T::default());
        number
    }

    pub(super) fn release(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Uses the state of a handle, if it is open.
    pub(super) fn with<R>(&self, number: u64, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().get_mut(&number).map(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_handles_take_no_memory() {
        let handles: ControlHandles<u32> = ControlHandles::default();
        let (one, other) = (handles.open(), handles.open());
        assert_ne!(one, other);
        assert_eq!(handles.with(one, |state| std::mem::replace(state, 7)), Some(0));
        assert_eq!(handles.with(one, |state| *state), Some(7));
        handles.release(one);
        handles.release(other);
        assert_eq!(handles.with(one, |_| ()), None);
        assert!(handles.lock().is_empty());
    }
}
