//! A future on the heap, in memory that its thread keeps for the next one.
//!
//! A gate makes a large future for each request. The allocator of glibc takes a lock for each allocation of more than 1,032 bytes
//! (malloc/malloc.c, `tcache`).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Memory is kept in sizes of powers of two, from this one on.
const SMALLEST: usize = 512;
/// Number of these sizes. A larger future has memory of its own.
const SIZES: usize = 7;
/// Alignment of the memory. A future that needs more has memory of its own.
const ALIGNMENT: usize = 64;
/// Most pieces of a size that a thread keeps.
const KEPT_MAX: usize = 8;

thread_local! {
    static KEPT: Kept = const { Kept([const { RefCell::new(Vec::new()) }; SIZES]) };
}

/// The free memory of a thread, by its size.
struct Kept([RefCell<Vec<NonNull<u8>>>; SIZES]);

impl Drop for Kept {
    fn drop(&mut self) {
        for (size, kept) in self.0.iter().enumerate() {
            for memory in kept.take() {
                // SAFETY: `Memory::drop` has put it here, unused, and it was allocated with this layout.
                unsafe { dealloc(memory.as_ptr(), layout(size)) };
            }
        }
    }
}

/// The layout of the memory of this size.
fn layout(size: usize) -> Layout {
    Layout::from_size_align(SMALLEST << size, ALIGNMENT).expect("constants that are small powers of two")
}

/// Memory for one value.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    /// Which of the sizes that are kept it has.
    size: Option<usize>,
}

impl Memory {
    fn take(wanted: Layout) -> Memory {
        let size = (0..SIZES).find(|size| wanted.size() <= SMALLEST << size && wanted.align() <= ALIGNMENT);
        let layout = match size {
            Some(size) => layout(size),
            None => {
                // An allocation has at least one byte.
                let bytes = wanted.size().max(1);
                Layout::from_size_align(bytes, wanted.align()).expect("it is as large as a layout")
            }
        };
        let kept = size.and_then(|size| KEPT.try_with(|kept| kept.0[size].borrow_mut().pop()).ok().flatten());
        let start = kept.unwrap_or_else(|| {
            // SAFETY: the layout has bytes.
            NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
        });
        Memory { start, layout, size }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let is_kept = self.size.is_some_and(|size| {
            let keep = |kept: &Kept| {
                let mut kept = kept.0[size].borrow_mut();
                let has_room = kept.len() < KEPT_MAX;
                if has_room {
                    kept.push(self.start);
                }
                has_room
            };
            // At the thread's end nothing is kept.
            KEPT.try_with(keep).unwrap_or(false)
        });
        if !is_kept {
            // SAFETY: it was allocated with this layout, and nobody has it any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// As a `Pin<Box<dyn Future<Output = ()>>>`, in memory that is used again.
pub struct FutureBox {
    /// Lies in the memory, and is dropped before it.
    future: NonNull<dyn Future<Output = ()>>,
    _memory: Memory,
}

impl FutureBox {
    /// `make` makes the future where it stays, if the compiler can see to it.
    pub fn new<F: Future<Output = ()> + 'static>(make: impl FnOnce() -> F) -> FutureBox {
        let memory = Memory::take(Layout::new::<F>());
        let place = memory.start.cast::<F>();
        // SAFETY: the memory is ours alone, and large and aligned enough. If `make` panics, it has no value.
        unsafe { place.write(make()) };
        FutureBox { future: place, _memory: memory }
    }
}

impl Future for FutureBox {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the value is ours alone, and never moves: the box has only its address.
        unsafe { Pin::new_unchecked(self.future.as_mut()) }.poll(cx)
    }
}

impl Drop for FutureBox {
    fn drop(&mut self) {
        // SAFETY: the value is ours alone, and is not used after this.
        unsafe { self.future.as_ptr().drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::thread;

    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    /// A future with this many bytes that ends at its second poll, and then says whether they were still there.
    fn of<const N: usize>(mark: u8, seen: Rc<RefCell<Vec<u8>>>) -> FutureBox {
        FutureBox::new(move || async move {
            let bytes = [mark; N];
            futures_util::pending!();
            let same = bytes.iter().all(|byte| *byte == mark);
            seen.borrow_mut().push(if same { mark } else { 0 });
        })
    }

    fn kept() -> Vec<usize> {
        KEPT.with(|kept| kept.0.iter().map(|kept| kept.borrow().len()).collect())
    }

    #[test]
    fn memory_is_used_again_and_bounded() {
        thread::spawn(|| {
            let seen = Rc::default();
            let first = of::<2_000>(1, Rc::clone(&seen));
            let address = first.future.as_ptr().addr();
            drop(first);
            let second = of::<2_000>(1, Rc::clone(&seen));
            assert_eq!(second.future.as_ptr().addr(), address);
            let many: Vec<_> = (0..3 * KEPT_MAX).map(|_| of::<2_000>(1, Rc::clone(&seen))).collect();
            drop((second, many));
            assert_eq!(kept().iter().sum::<usize>(), KEPT_MAX);
            drop(of::<200_000>(1, Rc::clone(&seen)));
            assert_eq!(kept().iter().sum::<usize>(), KEPT_MAX, "too large to keep");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn what_a_future_holds_is_dropped_once() {
        let held = Rc::new(());
        let hold = |ends: bool| {
            let held = Rc::clone(&held);
            FutureBox::new(move || async move {
                if !ends {
                    futures_util::pending!();
                }
                drop(held);
            })
        };
        assert!(hold(true).now_or_never().is_some());
        let waits = hold(false);
        assert_eq!(Rc::strong_count(&held), 2);
        drop(waits);
        assert_eq!(Rc::strong_count(&held), 1);
        #[repr(align(256))]
        struct Wide(u8);
        let wide = Wide(3);
        let aligned = FutureBox::new(move || async move {
            let wide = &wide;
            futures_util::pending!();
            assert_eq!(wide.0, 3);
        });
        assert_eq!(aligned.future.as_ptr().addr() % 256, 0);
    }

    proptest! {
        #[test]
        fn futures_do_not_share_memory(marks in prop::collection::vec((1_u8..255, 0..4_usize, any::<bool>()), 1..40)) {
            let seen = Rc::<RefCell<Vec<u8>>>::default();
            let mut waiting = Vec::new();
            let mut expected = Vec::new();
            for (mark, size, goes_first) in marks {
                let mut future = match size {
                    0 => of::<10>(mark, Rc::clone(&seen)),
                    1 => of::<600>(mark, Rc::clone(&seen)),
                    2 => of::<5_000>(mark, Rc::clone(&seen)),
                    _ => of::<100_000>(mark, Rc::clone(&seen)),
                };
                prop_assert!((&mut future).now_or_never().is_none());
                if goes_first {
                    prop_assert!(future.now_or_never().is_some());
                    expected.push(mark);
                } else {
                    waiting.push((mark, future));
                }
            }
            for (mark, future) in waiting {
                prop_assert!(future.now_or_never().is_some());
                expected.push(mark);
            }
            prop_assert_eq!(&*seen.borrow(), &expected);
        }
    }
}
