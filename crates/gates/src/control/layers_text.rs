//! What has entered each layer, from the top down: `layer NAME reads N read_bytes N writes N written_bytes N`.

use client::LayerCounters;

/// A line for each layer.
pub(crate) fn layers_text(layers: &[LayerCounters]) -> String {
    let line = |layer: &LayerCounters| {
        let LayerCounters { name, reads, read_bytes, writes, written_bytes } = layer;
        format!(
            "layer {name} reads {reads} read_bytes {read_bytes} writes {writes} written_bytes {written_bytes}\n"
        )
    };
    layers.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_line() {
        let auto = LayerCounters { name: "auto", reads: 1, read_bytes: 2, writes: 3, written_bytes: 4 };
        let bricks = LayerCounters { name: "bricks", ..LayerCounters::default() };
        let expected = "layer auto reads 1 read_bytes 2 writes 3 written_bytes 4\n\
                        layer bricks reads 0 read_bytes 0 writes 0 written_bytes 0\n";
        assert_eq!(layers_text(&[auto, bricks]), expected);
    }
}
