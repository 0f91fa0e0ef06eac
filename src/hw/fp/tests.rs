//! Every unit against the scalar arithmetic: interpreter and Verilator, corner cases, random
//! words and all TestFloat vectors; the text as snapshots; a mutated print must be noticed.

use super::*;
use crate::num::fp32 as oracle;
use crate::num::testfloat::data_dir;
use crate::sim::cosim::{self, CosimError, Model, Stimulus};
use crate::sim::lint;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Words at every edge of the format.
const CORNERS: [u32; 26] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x0080_0001,
    0x00ff_ffff,
    0x0100_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f80_0001,
    0x3f7f_ffff,
    0x4b80_0000,
    0x3400_0000,
    0x3380_0000,
    0x3380_0001,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0xffff_ffff,
];

/// Operand pairs: corners crossed, uniform words, near exponents, results near underflow.
fn pairs(seed: u64, random: usize) -> Vec<[u32; 2]> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut rows: Vec<[u32; 2]> = CORNERS
        .iter()
        .flat_map(|&a| CORNERS.iter().map(move |&b| [a, b]))
        .collect();
    for k in 0..random {
        let (a, b): (u32, u32) = (rng.random(), rng.random());
        rows.push(match k % 6 {
            0 => [a, b],
            // Exponents within a few places: cancellation, ties, carries.
            1 => [
                a & 0xbfff_ffff | 0x2000_0000,
                (a ^ b) & 0x83ff_ffff ^ a & 0x3f80_0000,
            ],
            2 => [a, a ^ 0x8000_0000 ^ (1 << (b % 31))],
            // Products and quotients near 2^-126.
            3 => {
                let e = 1 + (a >> 8) % 126;
                let other = if b & 8 == 0 { 126 - e } else { 126 + e } + b % 4;
                [a & 0x807f_ffff | e << 23, b & 0x807f_ffff | other << 23]
            }
            4 => [a & 0xfff0_0000, b & 0xfffc_0000],
            _ => [CORNERS[a as usize % CORNERS.len()], b],
        });
    }
    rows
}

/// TestFloat operands (the results are checked in `num`); all of the file.
fn testfloat(name: &str, operands: usize) -> Vec<[u32; 2]> {
    let Some(dir) = data_dir() else {
        return vec![];
    };
    let text = std::fs::read_to_string(dir.join("testfloat").join(name)).unwrap();
    let word = |w: &str| u32::from_str_radix(w, 16).unwrap();
    let rows: Vec<[u32; 2]> = text
        .lines()
        .map(|line| {
            let words: Vec<u32> = line.split_whitespace().take(operands).map(word).collect();
            [words[0], words.get(1).copied().unwrap_or(0)]
        })
        .collect();
    assert!(rows.len() > 600, "{name} has only {} vectors", rows.len());
    rows
}

fn stimulus(def: &ModuleDef, rows: &[[u32; 2]], latency: u32) -> Stimulus {
    let mut list: Vec<Vec<u128>> = rows
        .iter()
        .map(|r| vec![r[0] as u128, r[1] as u128])
        .collect();
    list.extend((0..latency).map(|_| vec![0; 2]));
    Stimulus::from_rows(def, &list)
}

/// Interpreter against the oracle on every row, then Verilator against the interpreter.
fn check(def: &Arc<ModuleDef>, latency: u32, rows: &[[u32; 2]], want: impl Fn(f32, f32) -> f32) {
    let stimulus = stimulus(def, rows, latency);
    let trace = cosim::interpret(def, &stimulus);
    for (k, &[a, b]) in rows.iter().enumerate() {
        let got = trace.data[k + latency as usize] as u32;
        let want = want(f32::from_bits(a), f32::from_bits(b)).to_bits();
        assert_eq!(
            got, want,
            "{}: {a:08x} {b:08x} gives {got:08x}, want {want:08x} (vector {k})",
            def.name
        );
    }
    if cosim::skip_without_verilator(&def.name) {
        return;
    }
    lint::assert_clean(def);
    let report = cosim::compare(def, &stimulus).unwrap();
    assert_eq!(report.words_compared, rows.len() as u64 + latency as u64);
    println!("{}: {} vectors equal", def.name, rows.len());
}

fn rows(file: &str, operands: usize, seed: u64) -> Vec<[u32; 2]> {
    let mut rows = pairs(seed, 60_000);
    rows.extend(testfloat(file, operands));
    rows
}

#[test]
fn add_equals_the_oracle() {
    check(
        &fp32_add().unwrap(),
        ADD_LATENCY,
        &rows("f32_add.txt", 2, 1),
        oracle::add,
    );
}

#[test]
fn sub_equals_the_oracle() {
    check(
        &fp32_sub().unwrap(),
        ADD_LATENCY,
        &rows("f32_sub.txt", 2, 2),
        oracle::sub,
    );
}

#[test]
fn mul_equals_the_oracle() {
    check(
        &fp32_mul().unwrap(),
        MUL_LATENCY,
        &rows("f32_mul.txt", 2, 3),
        oracle::mul,
    );
}

#[test]
fn div_equals_the_oracle() {
    check(
        &fp32_div().unwrap(),
        DIV_LATENCY,
        &rows("f32_div.txt", 2, 4),
        oracle::div,
    );
}

#[test]
fn sqrt_equals_the_oracle() {
    let want = |a: f32, _| oracle::sqrt(a);
    check(
        &fp32_sqrt().unwrap(),
        SQRT_LATENCY,
        &rows("f32_sqrt.txt", 1, 5),
        want,
    );
}

/// TestFloat's fused vectors exercise a multiplier followed by an adder with two roundings.
#[test]
fn multiply_then_add_equals_the_oracle() {
    let m = Module::new("nf_fp32_mul_add");
    let (a, b, c) = (m.input("a", 32), m.input("b", 32), m.input("c", 32));
    let product = mul(&m, "u_mul", a, b);
    m.output("y", add(&m, "u_add", product, m.pipe("c", c, MUL_LATENCY)));
    let def = m.finish().unwrap();
    let latency = (MUL_LATENCY + ADD_LATENCY) as usize;
    let Some(dir) = data_dir() else {
        return;
    };
    let text = std::fs::read_to_string(dir.join("testfloat/f32_mulAdd.txt")).unwrap();
    let mut rows: Vec<Vec<u128>> = text
        .lines()
        .map(|l| {
            let words = l.split_whitespace().take(3);
            words
                .map(|w| u128::from_str_radix(w, 16).unwrap())
                .collect()
        })
        .collect();
    let count = rows.len();
    assert!(count > 8000);
    rows.extend((0..latency).map(|_| vec![0; 3]));
    let trace = cosim::interpret(&def, &Stimulus::from_rows(&def, &rows));
    for (k, row) in rows[..count].iter().enumerate() {
        let [a, b, c] = [0, 1, 2].map(|i| f32::from_bits(row[i] as u32));
        let want = oracle::add(oracle::mul(a, b), c).to_bits();
        assert_eq!(
            trace.data[k + latency] as u32,
            want,
            "{a:e} * {b:e} + {c:e}"
        );
    }
}

#[test]
fn emitted_text() {
    for def in [fp32_add(), fp32_sub(), fp32_mul(), fp32_div(), fp32_sqrt()] {
        let def = def.unwrap();
        insta::assert_snapshot!(def.name.clone(), crate::dsl::print_module(&def, ""));
    }
}

/// A comparison that cannot fail proves nothing: flipped operators must be noticed.
#[test]
fn mutated_text_is_noticed() {
    if cosim::skip_without_verilator("fp mutation") {
        return;
    }
    let def = fp32_add().unwrap();
    let stimulus = stimulus(&def, &pairs(9, 4000), ADD_LATENCY);
    let files = crate::dsl::Design::new(def.clone())
        .unwrap()
        .print_verilog("");
    let (head, body) = files[0].1.split_once(");\n").unwrap();
    for (from, to) in [(" + ", " - "), (" ^ ", " & "), (" < ", " > ")] {
        assert!(body.contains(from), "`{from}` is not in the text");
        let mutated = format!("{head});\n{}", body.replacen(from, to, 1));
        let model = Model::build_from(&def, &[(files[0].0.clone(), mutated)]).unwrap();
        let verdict = cosim::compare_model(&model, &stimulus);
        assert!(
            matches!(verdict, Err(CosimError::Mismatch { .. })),
            "`{from}` to `{to}` went unnoticed: {verdict:?}"
        );
    }
}
