//! The small blocks against the arithmetic of `num`.

use super::Random;
use crate::dsl::Interpreter;
use crate::hw::trainer::mat::*;
use crate::num::block;
use std::collections::VecDeque;

#[test]
fn aligner_equals_the_grid_definition() {
    let mut sim = Interpreter::new(&aligner().unwrap());
    let mut random = Random(1);
    let mut expected = VecDeque::from([None; ALIGN_LATENCY as usize]);
    let mut unit = (0, 0);
    for n in 0..200_000 {
        let emax = 1 + random.below(254) as u32;
        let near = emax.saturating_sub(random.below(24) as u32);
        let mut x = random.float(near, emax.min(near + 1));
        match random.below(8) {
            // Ties and all-ones significands.
            0 => x |= 0x007f_ff80,
            1 => x &= !(0x007f_ffff >> random.below(24)),
            2 => x |= 0x007f_ffff >> random.below(24),
            // Above the largest exponent: saturates.
            3 => x = random.bits() as u32 & 0xbfff_ffff,
            _ => {}
        }
        let is_unit = random.one_in(10);
        let hit = random.one_in(2);
        let q = match is_unit {
            true => i32::from(hit) * block::UNIT,
            false => block::quantise(f32::from_bits(x), emax),
        };
        sim.set_input("x", x.into());
        sim.set_input("emax", emax.into());
        sim.set_input("unit", unit.0);
        sim.set_input("hit", unit.1);
        unit = (is_unit.into(), hit.into());
        if let Some(Some((q, x, emax))) = expected.pop_front() {
            let got = sim.get_output("q") as i32;
            assert_eq!(got << 14 >> 14, q, "vector {n}: q({x:08x}) at emax {emax}");
        }
        expected.push_back(Some((q, x, emax)));
        sim.step();
    }
}

#[test]
fn normaliser_rounds_once() {
    let mut sim = Interpreter::new(&normaliser().unwrap());
    let mut random = Random(2);
    let mut expected = VecDeque::from([None; NORMALISE_LATENCY as usize]);
    let mut bases = VecDeque::from([0u128; 3]);
    let (mut zeros, mut smallest, mut infinities) = (0, 0, 0);
    for n in 0..300_000 {
        let mut sum = (random.bits() as i64 >> 16) >> random.below(47);
        match random.below(6) {
            0 => sum = 0,
            // Ties and runs of ones.
            1 => sum = (sum | 0xff_ffff) << random.below(20) << 17 >> 17,
            2 => sum = ((1 << 46) - 1) >> random.below(24),
            3 => sum = -(((1i64 << 47) - (1 << random.below(24))) >> random.below(23)),
            _ => {}
        }
        let leading = 63 - sum.unsigned_abs().max(1).leading_zeros();
        // Half of the results near the ends of the range.
        let total = match random.below(4) {
            0 => 159 - leading as i64 + random.below(4) as i64 - 2,
            1 => 413 - leading as i64 + random.below(4) as i64 - 2,
            _ => random.below(509) as i64,
        }
        .clamp(0, 508) as u32;
        let (ea, eb) = (total / 2, total - total / 2);
        let want = block::normalise(sum, ea, eb).to_bits();
        zeros += i32::from(want & 0x7fff_ffff == 0 && sum != 0);
        smallest += i32::from(want & 0x7fff_ffff == 0x0080_0000);
        infinities += i32::from(want & 0x7fff_ffff == 0x7f80_0000);
        bases.push_back((i64::from(total) - 112) as u128 & 0x3ff);
        sim.set_input("sum", sum as u128 & ((1 << 48) - 1));
        sim.set_input("base", bases.pop_front().unwrap());
        if let Some(Some((want, sum, total))) = expected.pop_front() {
            let got = sim.get_output("y") as u32;
            assert_eq!(got, want, "vector {n}: {sum} x 2^({total} - 286)");
        }
        expected.push_back(Some((want, sum, total)));
        sim.step();
    }
    assert!(
        zeros > 1000 && smallest > 1000 && infinities > 1000,
        "ends of the range met too rarely: {zeros} {smallest} {infinities}"
    );
}

#[test]
fn rotators_turn_both_ways_for_any_b() {
    for b in [2, 3, 4, 5, 8, 11, 16, 17, 44] {
        for turn in [Turn::ToLanes, Turn::ToBanks] {
            let idle = (turn == Turn::ToLanes).then_some(5u128);
            let mut sim = Interpreter::new(&rotator(turn, 16, b, idle).unwrap());
            let mut random = Random(b as u64);
            let mut expected = VecDeque::from(vec![None; rotate_latency(b) as usize]);
            let mut rot = 0;
            let mut stop = false;
            for _ in 0..200 {
                let words: Vec<u128> = (0..b).map(|_| random.bits() as u128 & 0xffff).collect();
                let want: Vec<u128> = (0..b)
                    .map(|l| match turn {
                        _ if stop => 5,
                        Turn::ToLanes => words[(l + rot) % b],
                        Turn::ToBanks => words[(l + b - rot) % b],
                    })
                    .collect();
                expected.push_back(Some(want));
                rot = random.below(b);
                stop = idle.is_some() && random.one_in(5);
                sim.set_input("rot", rot as u128);
                if idle.is_some() {
                    sim.set_input("idle", stop.into());
                }
                for (l, word) in words.iter().enumerate() {
                    sim.set_input(&format!("x_{l}"), *word);
                }
                if let Some(Some(want)) = expected.pop_front() {
                    let got: Vec<u128> =
                        (0..b).map(|l| sim.get_output(&format!("y_{l}"))).collect();
                    assert_eq!(got, want, "{turn:?}, B = {b}");
                }
                sim.step();
            }
        }
    }
}

#[test]
fn stream_walks_skewed_banks() {
    for b in [4, 8, 11] {
        let bits = 10;
        let mut sim = Interpreter::new(&stream(bits, b).unwrap());
        let mut random = Random(7 + b as u64);
        // Two cycles behind the step.
        let mut expected = VecDeque::from([None::<Vec<usize>>, None]);
        sim.set_input("step", 0);
        for _ in 0..60 {
            let (addr, pitch) = (random.below(300), random.below(60));
            let (rot, h) = (random.below(b), random.one_in(2));
            let steps = 1 + random.below(3 * b);
            sim.set_input("load", 1);
            for (name, v) in [
                ("addr", addr),
                ("pitch", pitch),
                ("rot0", rot),
                ("h", h.into()),
            ] {
                sim.set_input(name, v as u128);
            }
            for s in 0..=steps {
                if let Some(Some(want)) = expected.pop_front() {
                    let got: Vec<usize> = (0..b)
                        .map(|k| sim.get_output(&format!("addr_{k}")) as usize)
                        .collect();
                    assert_eq!(got, want, "B = {b}, H = {h}");
                }
                if s == 0 {
                    expected.push_back(None);
                    sim.step();
                    sim.set_input("load", 0);
                    sim.set_input("step", 1);
                    continue;
                }
                let now = (rot + s - 1) % b;
                assert_eq!(sim.get_output("rot") as usize, now);
                let want = (0..b).map(|bank| match h {
                    true => addr + (s - 1) / b * pitch + (bank + b - now) % b,
                    false => addr + s - 1,
                });
                expected.push_back(Some(want.collect()));
                if s == steps {
                    sim.set_input("step", 0);
                }
                sim.step();
            }
            sim.set_input("step", 0);
        }
    }
}

#[test]
fn exponent_max_finds_the_largest() {
    for b in [2, 3, 4, 11, 44] {
        let mut sim = Interpreter::new(&exponent_max(b).unwrap());
        let mut random = Random(b as u64);
        let latency = emax::max_latency(b) as usize;
        let mut expected = VecDeque::from(vec![None; latency]);
        for _ in 0..300 {
            let row: Vec<usize> = (0..b)
                .map(|_| random.below(256) & random.below(256))
                .collect();
            for (c, e) in row.iter().enumerate() {
                sim.set_input(&format!("e_{c}"), *e as u128);
            }
            if let Some(Some(want)) = expected.pop_front() {
                assert_eq!(sim.get_output("row_max"), want, "B = {b}");
            }
            expected.push_back(Some(*row.iter().max().unwrap() as u128));
            sim.step();
        }
    }
}

#[test]
fn halvings_equal_the_multiplication() {
    for p in [0u32, 1, 2, 5] {
        let mut multiplies = Interpreter::new(&epilogue_lane(Scale::Multiplier).unwrap());
        let mut halves = Interpreter::new(&epilogue_lane(Scale::Halvings(p)).unwrap());
        let mut random = Random(31 + u64::from(p));
        let mut near_zero = 0;
        for n in 0..60_000 {
            let mut sum = (random.bits() as i64 >> 16) >> random.below(47);
            if random.one_in(3) {
                // Runs of ones: the largest value below the normal range.
                sum = (sum | 0xff_ffff) << random.below(20) << 17 >> 17;
            }
            // Biased exponents from far below the normal range to above it, most at its lower end.
            let base = match random.below(4) {
                0 => random.below(700) as i64 - 100,
                _ => random.below(60) as i64 - 4,
            };
            let on = random.one_in(2);
            let factor = if on { (127 - p) << 23 } else { 0x3f80_0000 };
            let addend = match random.one_in(2) {
                true => 0x8000_0000,
                false => random.float(1, 40),
            };
            let shared = [
                ("sum", sum as u128 & 0xffff_ffff_ffff),
                ("base", base as u128 & 0x3ff),
                ("addend", addend.into()),
                ("keep", 1),
            ];
            for (name, value) in shared {
                multiplies.set_input(name, value);
                halves.set_input(name, value);
            }
            multiplies.set_input("scale", factor.into());
            halves.set_input("scale", on.into());
            let (want, got) = (multiplies.get_output("y"), halves.get_output("y"));
            // The addition's NaN (infinities of both signs) cannot come: addends are finite.
            assert_eq!(got, want, "p = {p}, cycle {n}");
            let exponent = got >> 23 & 0xff;
            near_zero += u32::from((1..8).contains(&exponent));
            multiplies.step();
            halves.step();
        }
        assert!(near_zero > 100, "{near_zero}");
    }
}
