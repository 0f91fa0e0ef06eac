//! Conversions, maximum and flush against f64 and the scalar arithmetic.

use super::*;
use crate::num::fp32 as oracle;
use crate::sim::cosim::{self, Stimulus};
use crate::sim::lint;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

fn words(seed: u64, count: usize) -> Vec<u32> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut list = vec![
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x3f00_0000,
        0x3fc0_0000,
        0x4020_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f7f_ffff,
    ];
    for k in 0..count {
        let bits: u32 = rng.random();
        let near = 100 + rng.random_range(0..80u32);
        list.push(if k % 4 == 0 {
            bits
        } else {
            bits & 0x807f_ffff | near << 23
        });
        if k % 16 == 0 {
            // Ties: few significant bits.
            list.push(bits & 0x8078_0000 | near << 23);
        }
    }
    list
}

/// Runs one-operand rows and compares every result; then Verilator.
fn check(def: &Arc<ModuleDef>, rows: &[Vec<u128>], latency: u32, want: impl Fn(&[u128]) -> u64) {
    let mut all = rows.to_vec();
    all.extend((0..latency).map(|_| vec![0; def.inputs.len()]));
    let stimulus = Stimulus::from_rows(def, &all);
    let trace = cosim::interpret(def, &stimulus);
    for (k, row) in rows.iter().enumerate() {
        let (got, want) = (trace.data[k + latency as usize], want(row));
        assert_eq!(
            got, want,
            "{}: {row:x?} gives {got:x}, want {want:x}",
            def.name
        );
    }
    if cosim::skip_without_verilator(&def.name) {
        return;
    }
    lint::assert_clean(def);
    let report = cosim::compare(def, &stimulus).unwrap();
    assert_eq!(report.words_compared, all.len() as u64);
}

fn fixed(a: f32, width: u32, frac: u32, mode: ToFixed) -> u64 {
    if a.is_nan() {
        return 0;
    }
    let scaled = f64::from(oracle::ftz(a)) * 2f64.powi(frac as i32);
    let whole = match mode {
        ToFixed::Truncate => scaled.trunc(),
        ToFixed::Nearest => scaled.round_ties_even(),
    };
    let limit = (1i128 << (width - 1)) - 1;
    let value = (whole as i128).clamp(-limit, limit);
    value as u64 & u64::MAX >> (64 - width)
}

#[test]
fn to_fixed_equals_f64() {
    let rows: Vec<Vec<u128>> = words(1, 20_000).iter().map(|&w| vec![w as u128]).collect();
    for (width, frac, mode) in [
        (32, 22, ToFixed::Truncate),
        (12, 3, ToFixed::Truncate),
        (18, 16, ToFixed::Nearest),
        (64, 24, ToFixed::Nearest),
    ] {
        let def = fp32_to_fixed(width, frac, mode).unwrap();
        check(&def, &rows, TO_FIXED_LATENCY, |r| {
            fixed(f32::from_bits(r[0] as u32), width, frac, mode)
        });
    }
}

#[test]
fn from_fixed_equals_f64() {
    let mut rng = Pcg64::seed_from_u64(2);
    for (width, frac) in [(8, 0), (32, 0), (48, 24)] {
        let mask = u64::MAX >> (64 - width);
        let mut list: Vec<u64> = vec![0, 1, mask, 1 << (width - 1), mask >> 1, 3 << (width / 2)];
        for _ in 0..20_000 {
            let shift = rng.random_range(0..width);
            list.push(rng.random::<u64>() & mask);
            list.push(((rng.random::<u64>() << (64 - width)) as i64 >> shift) as u64 & mask);
            // Ties of a 24-bit significand.
            list.push((1 << 24 | rng.random::<u64>() & 0xff_ffff) << shift & mask);
        }
        let def = fp32_from_fixed(width, frac).unwrap();
        let rows: Vec<Vec<u128>> = list.iter().map(|&v| vec![v as u128]).collect();
        check(&def, &rows, FROM_FIXED_LATENCY, |r| {
            let x = (r[0] as u64) << (64 - width);
            let x = x as i64 >> (64 - width);
            // Exact in f64 for up to 48 bits; one rounding follows.
            let scaled = x as f64 * 2f64.powi(-(frac as i32));
            u64::from(oracle::from_f64(scaled).to_bits())
        });
    }
}

#[test]
fn max_and_flush_equal_the_oracle() {
    let (a, b) = (words(3, 20_000), words(4, 20_000));
    let rows: Vec<Vec<u128>> = a
        .iter()
        .enumerate()
        .map(|(k, &a)| match k % 3 {
            0 => vec![a as u128, (a ^ 1) as u128],
            _ => vec![a as u128, b[k] as u128],
        })
        .collect();
    let def = fp32_max().unwrap();
    check(&def, &rows, MAX_LATENCY, |r| {
        let [a, b] = [0, 1].map(|k| f32::from_bits(r[k] as u32));
        let larger = if oracle::ftz(a) < oracle::ftz(b) {
            b
        } else {
            a
        };
        u64::from(larger.to_bits())
    });

    let m = Module::new("nf_fp32_flush");
    m.output("y", compare::flush(m.input("a", 32)));
    let def = m.finish().unwrap();
    let rows: Vec<Vec<u128>> = a.iter().map(|&a| vec![a as u128]).collect();
    check(&def, &rows, 0, |r| {
        u64::from(oracle::ftz(f32::from_bits(r[0] as u32)).to_bits())
    });
}

#[test]
fn shapes_that_cannot_be_built_are_errors() {
    for error in [
        fp32_from_fixed(65, 0).unwrap_err(),
        fp32_to_fixed(2, 0, ToFixed::Nearest).unwrap_err(),
        fp32_to_fixed(16, 65, ToFixed::Truncate).unwrap_err(),
    ] {
        assert!(error.to_string().contains("are possible"), "{error}");
    }
}

#[test]
fn emitted_text() {
    for def in [
        fp32_max(),
        fp32_from_fixed(48, 24),
        fp32_to_fixed(32, 22, ToFixed::Truncate),
        fp32_to_fixed(18, 16, ToFixed::Nearest),
    ] {
        let def = def.unwrap();
        insta::assert_snapshot!(def.name.clone(), crate::dsl::print_module(&def, ""));
    }
}
