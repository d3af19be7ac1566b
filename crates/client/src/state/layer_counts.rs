//! How many requests and bytes enter each layer of a mount, for the mount and for each of its open files.
//!
//! The layers are the translators, from the top down, and then the bricks. What enters the first one is what programs ask
//! for. What goes to bricks is what this client sends and asks for, also when it repeats a request: units and stripes that
//! it reads, bytes that it writes to primaries, units that it stages. What bricks send to each other is not counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use types::messages::brick::AskedCounts;

/// Most layers that are counted, with the bricks; what is between is counted with the last translator.
const LAYERS_MAX: usize = 16;
/// The place of the bricks. The translators come after it.
const BRICKS: usize = 0;
/// The name that the bricks have as the last layer.
const BRICKS_NAME: &str = "bricks";

/// What has entered a layer since the mount began, or since the file was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LayerCounters {
    /// The layer's name.
    pub name: &'static str,
    /// Reads.
    pub reads: u64,
    /// Bytes that they asked for.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
}

#[derive(Default)]
struct Layer([AtomicU64; 4]);

impl Layer {
    fn add(&self, first: usize, bytes: u64) {
        self.0[first].fetch_add(1, Ordering::Relaxed);
        self.0[first + 1].fetch_add(bytes, Ordering::Relaxed);
    }

    fn counters(&self, name: &'static str) -> LayerCounters {
        let [reads, read_bytes, writes, written_bytes] =
            [0, 1, 2, 3].map(|i| self.0[i].load(Ordering::Relaxed));
        LayerCounters { name, reads, read_bytes, writes, written_bytes }
    }
}

/// The counters of an open file. They take memory from its first request on, 32 bytes for each layer.
#[derive(Default)]
pub(crate) struct FileCounts(OnceLock<Box<[Layer]>>);

/// The counters of all layers, shared by all threads of a mount.
#[derive(Default)]
pub(crate) struct LayerCounts {
    /// The names of the translators, from the top down.
    names: OnceLock<Vec<&'static str>>,
    layers: [Layer; LAYERS_MAX],
}

impl LayerCounts {
    /// Sets the names of the translators, from the top down. All threads have the same ones.
    pub(crate) fn set_names(&self, names: impl Iterator<Item = &'static str>) {
        self.names.get_or_init(|| names.take(LAYERS_MAX - 1).collect());
    }

    /// A read enters a translator, counted from the top.
    pub(crate) fn read(&self, file: &FileCounts, translator: usize, len: usize) {
        self.add(file, translator + 1, 0, len);
    }

    /// A write enters a translator, counted from the top.
    pub(crate) fn write(&self, file: &FileCounts, translator: usize, len: usize) {
        self.add(file, translator + 1, 2, len);
    }

    /// A read goes to a brick.
    pub(crate) fn read_brick(&self, file: &FileCounts, len: usize) {
        self.add(file, BRICKS, 0, len);
    }

    /// Bytes of a write go to a brick.
    pub(crate) fn write_brick(&self, file: &FileCounts, len: usize) {
        self.add(file, BRICKS, 2, len);
    }

    fn add(&self, file: &FileCounts, layer: usize, first: usize, len: usize) {
        let of_file = file.0.get_or_init(|| (0..=self.names().len()).map(|_| Layer::default()).collect());
        self.layers[layer.min(LAYERS_MAX - 1)].add(first, len as u64);
        of_file[layer.min(of_file.len() - 1)].add(first, len as u64);
    }

    /// What programs have asked the mount for: what has entered the first layer.
    pub(crate) fn asked(&self) -> AskedCounts {
        let LayerCounters { reads, read_bytes, writes, written_bytes, .. } = self.layers[1].counters("");
        AskedCounts { reads, read_bytes, writes, written_bytes }
    }

    /// The counters of the mount, from the top down.
    pub(crate) fn all(&self) -> Vec<LayerCounters> {
        self.shown(|layer| self.layers.get(layer))
    }

    /// The counters of a file, from the top down.
    pub(crate) fn of_file(&self, file: &FileCounts) -> Vec<LayerCounters> {
        self.shown(|layer| file.0.get().and_then(|layers| layers.get(layer)))
    }

    fn shown<'a>(&self, layer: impl Fn(usize) -> Option<&'a Layer>) -> Vec<LayerCounters> {
        let named = (1..).zip(self.names().iter().copied()).chain([(BRICKS, BRICKS_NAME)]);
        let zero = |name| LayerCounters { name, ..LayerCounters::default() };
        named
            .map(|(place, name)| layer(place).map_or_else(|| zero(name), |layer| layer.counters(name)))
            .collect()
    }

    fn names(&self) -> &[&'static str] {
        self.names.get().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_for_the_mount_and_for_the_file() {
        let (counts, files) = (LayerCounts::default(), [FileCounts::default(), FileCounts::default()]);
        counts.set_names(["top", "end"].into_iter());
        counts.read(&files[0], 0, 10);
        counts.read(&files[0], 1, 40);
        counts.read_brick(&files[0], 30);
        counts.write(&files[1], 1, 5);
        counts.write_brick(&files[1], 6);
        let shown = |layers: Vec<LayerCounters>| -> Vec<_> {
            layers.iter().map(|l| (l.name, [l.reads, l.read_bytes, l.writes, l.written_bytes])).collect()
        };
        let of_mount = [("top", [1, 10, 0, 0]), ("end", [1, 40, 1, 5]), ("bricks", [1, 30, 1, 6])];
        assert_eq!(shown(counts.all()), of_mount);
        let asked = AskedCounts { reads: 1, read_bytes: 10, writes: 0, written_bytes: 0 };
        assert_eq!(counts.asked(), asked);
        let of_file = [("top", [1, 10, 0, 0]), ("end", [1, 40, 0, 0]), ("bricks", [1, 30, 0, 0])];
        assert_eq!(shown(counts.of_file(&files[0])), of_file);
        let untouched = [("top", [0; 4]), ("end", [0; 4]), ("bricks", [0; 4])];
        assert_eq!(shown(counts.of_file(&FileCounts::default())), untouched);
        assert!(FileCounts::default().0.get().is_none(), "a file without requests takes no memory for them");
    }

    #[test]
    fn more_translators_than_are_counted_do_no_harm() {
        let (counts, file) = (LayerCounts::default(), FileCounts::default());
        counts.set_names([""; 40].into_iter());
        (0..40).for_each(|translator| counts.read(&file, translator, 1));
        for layers in [counts.all(), counts.of_file(&file)] {
            assert_eq!(layers.len(), LAYERS_MAX);
            assert_eq!(layers.iter().map(|layer| layer.reads).sum::<u64>(), 40);
        }
    }
}
