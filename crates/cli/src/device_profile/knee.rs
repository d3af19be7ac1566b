//! Where a curve of measurements bends.

/// Of the most requests per second, this part is enough.
const ENOUGH: f64 = 0.9;
/// A step of less is noise of the machine, in microseconds.
const STEP_MIN_US: f64 = 15.0;
/// A step is more than so many times the noise.
const NOISE_TIMES: f64 = 4.0;

/// The fewest requests at a time with which a device does nine tenths of the most that it does. 1 if nothing was measured.
pub(crate) fn parallelism(by_depth: &[(u32, f64)]) -> u32 {
    let most = by_depth.iter().map(|(_, iops)| *iops).fold(0.0, f64::max);
    by_depth.iter().find(|(_, iops)| *iops >= most * ENOUGH).map_or(1, |(depth, _)| *depth)
}

/// Single reads of a size and of 4 KiB more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// The size, in bytes.
    pub(crate) bytes: u64,
    /// How much longer the larger one takes, in microseconds: the median.
    pub(crate) more_us: f64,
    /// By how much that may be wrong.
    pub(crate) noise_us: f64,
}

/// A step in the time of single reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Step {
    /// The last size before it, in bytes.
    pub(crate) bytes: u64,
    /// Its height, in microseconds.
    pub(crate) us: f64,
}

/// The first size after which 4 KiB more cost a step, and cost it again after twice the size: a device pauses after each
/// buffer's worth (paper 003, figures 17 and 18). [`None`] if there is no such size.
pub(crate) fn find_step(pairs: &[Pair]) -> Option<Step> {
    let sorted = |of: fn(&Pair) -> f64| {
        let mut all: Vec<f64> = pairs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (more, noise) = (sorted(|pair| pair.more_us), sorted(|pair| pair.noise_us));
    // The bytes themselves: what the smallest sizes have. Most others may have a step: it comes after all multiples of a size.
    let usual = *more.get(1)?;
    let bound = (NOISE_TIMES * noise[noise.len() / 2]).max(STEP_MIN_US);
    let height = |bytes: u64| pairs.iter().find(|pair| pair.bytes == bytes).map(|pair| pair.more_us - usual);
    pairs.iter().find_map(|pair| {
        let (once, twice) = (height(pair.bytes)?, height(pair.bytes * 2)?);
        (once > bound && twice > once / 2.0).then_some(Step { bytes: pair.bytes, us: once })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device of paper 003: 125 us after each 512 KiB, and noise.
    fn pairs(buffer: u64, step: f64, most: f64) -> Vec<Pair> {
        let time = |bytes: u64| bytes as f64 / 530.0 + step * ((bytes.div_ceil(buffer)) as f64 - 1.0);
        let sizes = (15..=22).map(|power| 1u64 << power);
        sizes
            .enumerate()
            .map(|(n, bytes)| {
                let noise = most * [0.0, 0.9, -0.7, 0.3, -0.4, 0.6, -0.9, 0.2][n];
                Pair { bytes, more_us: time(bytes + 4096) - time(bytes) + noise, noise_us: most }
            })
            .collect()
    }

    #[test]
    fn the_buffer_is_found_where_single_reads_step() {
        for (buffer, step) in [(512 << 10, 125.0), (128 << 10, 60.0), (1 << 20, 400.0)] {
            let found = find_step(&pairs(buffer, step, 3.0)).expect("a step");
            assert_eq!(found.bytes, buffer);
            assert!((found.us - step).abs() < 8.0, "{found:?}");
        }
    }

    #[test]
    fn noise_is_no_step() {
        assert_eq!(find_step(&pairs(1 << 40, 0.0, 3.0)), None);
        assert_eq!(find_step(&pairs(1 << 40, 0.0, 100.0)), None);
        let mut once = pairs(1 << 40, 0.0, 1.0);
        once[3].more_us += 300.0;
        assert_eq!(find_step(&once), None, "an outlier does not come again");
        assert_eq!(find_step(&[]), None);
    }

    #[test]
    fn a_device_needs_no_more_requests_than_for_nine_tenths() {
        assert_eq!(parallelism(&[(1, 10.0), (4, 39.0), (16, 95.0), (32, 100.0), (64, 99.0)]), 16);
        assert_eq!(parallelism(&[(1, 100.0), (32, 90.0)]), 1);
        assert_eq!(parallelism(&[]), 1);
    }
}
