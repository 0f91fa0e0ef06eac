//! Every TestFloat vector of the five operations, under the subnormal rule.

use super::fp32;
use std::path::PathBuf;

/// Folder of test data, or `None` with a visible note (an error under `NFGEN_REQUIRE_DATA=1`).
pub(crate) fn data_dir() -> Option<PathBuf> {
    let dir = std::env::var_os("NFGEN_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data"),
        PathBuf::from,
    );
    if dir.is_dir() {
        return Some(dir);
    }
    assert!(
        std::env::var_os("NFGEN_REQUIRE_DATA").is_none_or(|v| v != "1"),
        "test data not found at {}",
        dir.display()
    );
    println!("skipped: no test data at {}", dir.display());
    None
}

fn vectors(name: &str, operands: usize) -> Option<Vec<Vec<u32>>> {
    let text = std::fs::read_to_string(data_dir()?.join("testfloat").join(name)).unwrap();
    let rows: Vec<Vec<u32>> = text
        .lines()
        .map(|line| {
            line.split_whitespace()
                .take(operands + 1)
                .map(|w| u32::from_str_radix(w, 16).unwrap())
                .collect()
        })
        .collect();
    assert!(rows.len() > 100);
    Some(rows)
}

fn is_subnormal(bits: u32) -> bool {
    bits & 0x7f80_0000 == 0 && bits & 0x007f_ffff != 0
}

fn is_zero(bits: u32) -> bool {
    bits & 0x7fff_ffff == 0
}

/// The published result brought under the rule: one NaN, no subnormal.
fn under_rule(bits: u32) -> u32 {
    if f32::from_bits(bits).is_nan() {
        fp32::CANONICAL_NAN
    } else if is_subnormal(bits) {
        bits & 0x8000_0000
    } else {
        bits
    }
}

/// What an operation gives when a subnormal operand counts as zero, from the IEEE rules for zeros.
fn with_zero(op: char, a: u32, b: u32) -> u32 {
    let nan = |x: u32| f32::from_bits(x).is_nan();
    let inf = |x: u32| x & 0x7fff_ffff == 0x7f80_0000;
    let sign = (a ^ b) & 0x8000_0000;
    if nan(a) || nan(b) {
        return fp32::CANONICAL_NAN;
    }
    match op {
        '+' | '-' => {
            let b = if op == '-' { b ^ 0x8000_0000 } else { b };
            match (is_zero(a), is_zero(b)) {
                (true, true) => a & b,
                (true, false) => b,
                _ => a,
            }
        }
        '*' if inf(a) || inf(b) => fp32::CANONICAL_NAN,
        '*' => sign,
        _ if is_zero(a) && is_zero(b) => fp32::CANONICAL_NAN,
        _ if is_zero(b) => sign | 0x7f80_0000,
        _ => sign,
    }
}

fn check_binary(name: &str, op: char, f: fn(f32, f32) -> f32) {
    let Some(rows) = vectors(name, 2) else { return };
    for row in rows {
        let [a, b, r] = row[..] else {
            panic!("malformed line in {name}")
        };
        let flush = |x: u32| if is_subnormal(x) { x & 0x8000_0000 } else { x };
        let want = if is_subnormal(a) || is_subnormal(b) {
            with_zero(op, flush(a), flush(b))
        } else {
            under_rule(r)
        };
        let got = f(f32::from_bits(a), f32::from_bits(b)).to_bits();
        assert_eq!(got, want, "{a:08x} {op} {b:08x}: {got:08x}, not {want:08x}");
    }
}

#[test]
fn add() {
    check_binary("f32_add.txt", '+', fp32::add);
}

#[test]
fn sub() {
    check_binary("f32_sub.txt", '-', fp32::sub);
}

#[test]
fn mul() {
    check_binary("f32_mul.txt", '*', fp32::mul);
}

#[test]
fn div() {
    check_binary("f32_div.txt", '/', fp32::div);
}

#[test]
fn sqrt() {
    let Some(rows) = vectors("f32_sqrt.txt", 1) else {
        return;
    };
    for row in rows {
        let want = if is_subnormal(row[0]) {
            row[0] & 0x8000_0000
        } else {
            under_rule(row[1])
        };
        let got = fp32::sqrt(f32::from_bits(row[0])).to_bits();
        assert_eq!(got, want, "sqrt {:08x}", row[0]);
    }
}
