//! Any M lost units come back byte for byte: units are taken away in all ways, rebuilt and compared, with every
//! backend, and parity is compared with that of ISA-L.

use proptest::prelude::*;
use types::checksum::crc;

use super::*;

const CODES: [&str; 8] = ["1+2", "2+1", "4+2", "8+2", "8+3", "10+4", "5+6", "32+2"];
const LENGTHS: [usize; 17] = [0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 20_000];

fn code(text: &str) -> Code {
    text.parse().expect("code")
}

/// Bytes that look like chance but are the same on every run.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (crate::mix(seed << 32 | i) >> 40) as u8).collect()
}

fn encode(coder: &Coder, data: &[&[u8]], len: usize) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xa5; len]; coder.code().m()];
    coder.encode(data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    parity
}

/// A stripe of `code`, each unit at an odd place of its buffer so that no slice is aligned.
fn stripe(code: Code, len: usize, seed: u64) -> Vec<Vec<u8>> {
    let buffers: Vec<Vec<u8>> =
        (0..code.k()).map(|unit| bytes(len + 1 + unit % 7, seed + unit as u64)).collect();
    let data: Vec<&[u8]> = buffers.iter().enumerate().map(|(unit, buffer)| &buffer[1 + unit % 7..]).collect();
    let parity = encode(&Coder::new(code), &data, len);
    assert_eq!(
        parity,
        encode(&Coder::with_backend(code, Backend::Scalar), &data, len),
        "{code} of {len} bytes"
    );
    data.iter().map(|unit| unit.to_vec()).chain(parity).collect()
}

/// Loses `lost` and rebuilds it from the other units, in an order made by `turn`.
fn rebuild(coder: &Coder, units: &[Vec<u8>], lost: &[usize], turn: usize) {
    let mut live: Vec<usize> = (0..units.len()).filter(|unit| !lost.contains(unit)).collect();
    let at = turn % live.len();
    live.rotate_left(at);
    live.truncate(coder.code().k());
    let sources: Vec<(usize, &[u8])> = live.iter().map(|&unit| (unit, units[unit].as_slice())).collect();
    let mut outs: Vec<Vec<u8>> = lost.iter().map(|&unit| vec![0x5a; units[unit].len() + 3]).collect();
    let mut missing: Vec<(usize, &mut [u8])> =
        lost.iter().rev().zip(outs.iter_mut().rev()).map(|(&unit, out)| (unit, &mut out[3..])).collect();
    coder.decode(&sources, &mut missing).expect("K sources");
    for (&unit, out) in lost.iter().zip(&outs) {
        assert_eq!(&out[3..], units[unit], "{} lost {lost:?} from {live:?}", coder.code());
    }
}

/// Every loss of one and of two units that the code bears.
fn losses(code: Code) -> Vec<Vec<usize>> {
    let one = (0..code.slots()).map(|a| vec![a]);
    let two = (0..code.slots()).flat_map(|a| (0..a).map(move |b| vec![b, a]));
    one.chain(two).filter(|lost| lost.len() <= code.m()).collect()
}

#[test]
fn all_small_losses_at_all_awkward_lengths() {
    for code in CODES.map(code) {
        let coders = Backend::ALL.map(|backend| Coder::with_backend(code, backend));
        for (seed, &len) in LENGTHS.iter().enumerate() {
            let units = stripe(code, len, seed as u64);
            for (turn, lost) in losses(code).iter().enumerate() {
                // The plain backend has one path for all lengths: long stripes would only cost time.
                coders.iter().skip(usize::from(len > 200)).for_each(|c| rebuild(c, &units, lost, turn));
            }
        }
    }
}

#[test]
fn every_code_bears_m_losses() {
    for k in 1..=32 {
        for m in 1..=6 {
            let code = Code::new(k, m).expect("in range");
            let coder = Coder::new(code);
            let units = stripe(code, 97, u64::from(k));
            for first in 0..code.slots() {
                let mut lost: Vec<usize> = (0..code.m()).map(|i| (first + i * 3) % code.slots()).collect();
                lost.sort_unstable();
                lost.dedup();
                rebuild(&coder, &units, &lost, first);
            }
        }
    }
}

/// Parity checksums printed by a C program that linked ISA-L 2.30 (`ec_encode_data`, 4096-byte units).
#[test]
fn parity_is_that_of_isal() {
    let golden: [(&str, &[u32]); 4] = [
        ("8+2", &[0x3078_c2d6, 0x63b9_49e4]),
        ("8+3", &[0x08fe_5ff2, 0xd6fc_b246, 0xfb7b_6235]),
        ("10+4", &[0x5206_0e2e, 0x83cc_a4b2, 0x0cf8_5e03, 0x3d4e_d55c]),
        ("4+6", &[0x592b_1d46, 0x8ec9_6b6f, 0x03c8_d9e6, 0x7c4a_a72a, 0x32a0_c1f8, 0xf2e7_49fd]),
    ];
    for (text, sums) in golden {
        let code = code(text);
        let data: Vec<Vec<u8>> = (0..code.k() as u32)
            .map(|unit| {
                (0..4096).map(|i| ((unit * 4096 + i).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
            })
            .collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        for backend in Backend::ALL {
            let parity = encode(&Coder::with_backend(code, backend), &data, 4096);
            assert_eq!(
                parity.iter().map(|unit| crc(unit)).collect::<Vec<_>>(),
                sums,
                "{code} {}",
                backend.name()
            );
        }
    }
}

#[test]
fn no_parity_is_no_work() {
    let coder = Coder::new(code("3+0"));
    let unit = [1u8; 8];
    coder.encode(&[unit.as_slice(); 3], &mut []);
    coder.update(1, &unit, &mut []);
    assert_eq!(coder.decode(&[(0, &unit)], &mut []), Ok(()));
}

#[test]
fn contradictions_are_refused_and_nothing_is_written() {
    let coder = Coder::new(code("2+2"));
    let code = coder.code();
    let unit = [1u8; 8];
    let (a, b) = (unit.as_slice(), &unit[..4]);
    let refused = |sources: &[(usize, &[u8])], missing: &[usize]| {
        let mut outs = vec![[7u8; 8]; missing.len()];
        let mut missing: Vec<(usize, &mut [u8])> =
            missing.iter().zip(&mut outs).map(|(&unit, out)| (unit, out.as_mut_slice())).collect();
        let error = coder.decode(sources, &mut missing).expect_err("refused");
        assert!(outs.iter().flatten().all(|&byte| byte == 7));
        error
    };
    assert_eq!(refused(&[(0, a)], &[1]), DecodeError::TooFewSources { code, sources: 1 });
    assert_eq!(refused(&[(0, a), (4, a)], &[1]), DecodeError::NoSuchUnit { code, unit: 4 });
    assert_eq!(refused(&[(0, a), (64, a)], &[1]), DecodeError::NoSuchUnit { code, unit: 64 });
    assert_eq!(refused(&[(0, a), (0, a)], &[1]), DecodeError::NamedTwice { unit: 0 });
    assert_eq!(refused(&[(0, a), (1, a)], &[1]), DecodeError::NamedTwice { unit: 1 });
    assert_eq!(refused(&[(0, &[0; 9]), (2, b)], &[1]), DecodeError::Length { unit: 0, len: 9, expected: 8 });
    assert_eq!(refused(&[(0, a)], &[1]).to_string(), "2+2 needs 2 units to rebuild others, there are 1");
}

#[test]
fn the_cache_stays_small_and_right() {
    let code = code("10+4");
    let coder = Coder::new(code);
    let units = stripe(code, 64, 1);
    for turn in 0..3 {
        for lost in losses(code) {
            rebuild(&coder, &units, &lost, turn);
            assert!(coder.inner.decodes.lock().expect("whole").len() <= CACHED_MAX);
        }
    }
}

fn any_code() -> impl Strategy<Value = Code> {
    (1u8..=32, 0u8..=6).prop_map(|(k, m)| Code::new(k, m).expect("in range"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn backends_agree_and_any_m_losses_are_rebuilt(
        code in any_code(), len in 0usize..3000, seed in 0u64..1 << 20, picks in prop::collection::vec(0usize..64, 6),
    ) {
        let units = stripe(code, len, seed);
        let mut lost: Vec<usize> = picks.iter().take(code.m()).map(|pick| pick % code.slots()).collect();
        lost.sort_unstable();
        lost.dedup();
        for backend in Backend::ALL {
            rebuild(&Coder::with_backend(code, backend), &units, &lost, picks[0]);
        }
    }

    #[test]
    fn short_sources_count_as_zeros(
        code in any_code(), len in 0usize..1500, seed in 0u64..1 << 20, cuts in prop::collection::vec(0usize..1500, 32),
    ) {
        let short: Vec<Vec<u8>> =
            cuts.iter().take(code.k()).map(|cut| bytes((*cut).min(len), seed + *cut as u64)).collect();
        let padded: Vec<Vec<u8>> = short.iter().map(|unit| {
            let mut unit = unit.clone();
            unit.resize(len, 0);
            unit
        }).collect();
        let padded_parts: Vec<&[u8]> = padded.iter().map(Vec::as_slice).collect();
        let short_parts: Vec<&[u8]> = short.iter().map(Vec::as_slice).collect();
        for backend in Backend::ALL {
            let coder = Coder::with_backend(code, backend);
            let parity = encode(&coder, &padded_parts, len);
            prop_assert_eq!(&parity, &encode(&coder, &short_parts, len));
            if code.m() > 0 {
                let mut sources: Vec<(usize, &[u8])> = short_parts.iter().copied().enumerate().skip(1).collect();
                sources.push((code.k(), &parity[0]));
                let mut out = vec![0x5a; len];
                coder.decode(&sources, &mut [(0, &mut out)]).expect("K sources");
                prop_assert_eq!(&out, &padded[0]);
            }
        }
    }

    #[test]
    fn an_update_is_as_a_new_encode(
        code in any_code(), len in 1usize..1500, seed in 0u64..1 << 20, unit in 0usize..32, from in 0usize..1500,
    ) {
        let unit = unit % code.k();
        let from = from % len;
        let old = stripe(code, len, seed);
        let mut data: Vec<Vec<u8>> = old[..code.k()].to_vec();
        data[unit][from..].copy_from_slice(&bytes(len - from, seed + 99));
        let delta: Vec<u8> = old[unit][from..].iter().zip(&data[unit][from..]).map(|(a, b)| a ^ b).collect();
        let new = encode(&Coder::new(code), &data.iter().map(Vec::as_slice).collect::<Vec<_>>(), len);
        for backend in Backend::ALL {
            let coder = Coder::with_backend(code, backend);
            let mut parity = old[code.k()..].to_vec();
            coder.update(unit, &delta, &mut parity.iter_mut().map(|p| &mut p[from..]).collect::<Vec<_>>());
            prop_assert_eq!(&parity, &new);
            let mut parity = old[code.k()..].to_vec();
            for (row, out) in parity.iter_mut().enumerate() {
                coder.update_one(code.k() + row, unit, &delta, &mut out[from..]);
            }
            prop_assert_eq!(&parity, &new);
        }
    }
}

/// A lost unit as a sum, term by term.
#[test]
fn a_unit_is_the_sum_of_its_factors() {
    for (seed, text) in (0..).zip(CODES) {
        let code = code(text);
        for len in LENGTHS {
            let mut units = stripe(code, len, seed);
            let wanted = (seed as usize * 3 + len) % units.len();
            let mut sources: Vec<usize> = (0..units.len()).filter(|unit| *unit != wanted).collect();
            sources.reverse();
            sources.truncate(code.k());
            // A source that ends early stands for zeros behind it, if the others were made with those.
            let short = sources[len % sources.len()];
            if short < code.k() && wanted >= code.k() {
                units[short][len / 2..].fill(0);
                let data: Vec<&[u8]> = units[..code.k()].iter().map(Vec::as_slice).collect();
                let parity = encode(&Coder::new(code), &data, len);
                units.splice(code.k().., parity);
                units[short].truncate(len / 2);
            }
            for backend in Backend::ALL {
                let coder = Coder::with_backend(code, backend);
                let factors = coder.factors(&sources, wanted).expect("K sources");
                let mut sum = vec![0; len];
                sources
                    .iter()
                    .zip(factors)
                    .for_each(|(&unit, factor)| coder.add(factor, &units[unit], &mut sum));
                assert_eq!(sum, units[wanted], "{code}, unit {wanted} of {len} bytes from {sources:?}");
            }
        }
        let coder = Coder::new(code);
        let all: Vec<usize> = (0..code.slots()).collect();
        assert!(matches!(coder.factors(&all[1..code.k()], 0), Err(DecodeError::TooFewSources { .. })));
        assert!(matches!(coder.factors(&all[..code.k()], 0), Err(DecodeError::NamedTwice { .. })));
        assert!(matches!(coder.factors(&all[1..=code.k()], 99), Err(DecodeError::NoSuchUnit { .. })));
    }
}
