//! How many requests and bytes enter each layer of a mount.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most layers that are counted; what is further down is counted with the last one.
const LAYERS_MAX: usize = 16;

/// What has entered a layer since the mount began.
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

/// The counters of all layers, from the top down, shared by all threads of a mount.
#[derive(Default)]
pub(crate) struct LayerCounts {
    names: OnceLock<Vec<&'static str>>,
    layers: [Layer; LAYERS_MAX],
}

impl LayerCounts {
    /// Sets the names of the layers. All threads have the same ones.
    pub(crate) fn set_names(&self, names: impl Iterator<Item = &'static str>) {
        self.names.get_or_init(|| names.collect());
    }

    /// A read enters a layer.
    pub(crate) fn read(&self, layer: usize, len: usize) {
        self.add(layer, 0, len);
    }

    /// A write enters a layer.
    pub(crate) fn write(&self, layer: usize, len: usize) {
        self.add(layer, 2, len);
    }

    fn add(&self, layer: usize, first: usize, len: usize) {
        let counters = &self.layers[layer.min(LAYERS_MAX - 1)].0;
        counters[first].fetch_add(1, Ordering::Relaxed);
        counters[first + 1].fetch_add(len as u64, Ordering::Relaxed);
    }

    /// All counters, from the top down.
    pub(crate) fn all(&self) -> Vec<LayerCounters> {
        let one = |(name, layer): (&&'static str, &Layer)| {
            let [reads, read_bytes, writes, written_bytes] = [0, 1, 2, 3].map(|i| layer.0[i].load(Ordering::Relaxed));
            LayerCounters { name, reads, read_bytes, writes, written_bytes }
        };
        self.names.get().map(|names| names.iter().zip(&self.layers).map(one).collect()).unwrap_or_default()
    }
}
