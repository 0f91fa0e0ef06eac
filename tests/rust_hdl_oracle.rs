//! Two leaves against kernels written in rust-hdl and simulated by rust-hdl
//! (`docs/decisions/rust-hdl.md`). The only place that names the crate.

#[path = "rust_hdl/kernels.rs"]
mod kernels;

use kernels::{Fp32Add, Sma4Lane};
use nfgen::cgla::{LaneSign, rtl::sma4_lane};
use nfgen::dsl::Interpreter;
use nfgen::hw::fp;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rust_hdl::prelude::{Block, simulate};

/// Passes over a kernel until it settles; a chain of locals needs one pass per link.
const PASSES: usize = 100;

#[test]
fn the_fp32_adder_equals_a_rust_hdl_kernel() {
    let mut rng = Pcg64::seed_from_u64(1);
    let mut oracle = Fp32Add::default();
    oracle.connect_all();
    let mut adder = Interpreter::new(&fp::fp32_add().unwrap());
    let mut pending = std::collections::VecDeque::new();
    let mut compared = 0;
    for k in 0..40_000u32 {
        let (mut a, mut b): (u32, u32) = (rng.random(), rng.random());
        match k % 4 {
            // Near exponents: cancellation and ties; the rest is rarely interesting.
            0..=2 => {
                a = a & 0xbfff_ffff | 0x2000_0000;
                b = b & 0x83ff_ffff ^ a & 0x3f80_0000;
            }
            _ if k % 64 == 3 => a |= 0x7f80_0000,
            _ => {}
        }
        oracle.a.next = u64::from(a).into();
        oracle.b.next = u64::from(b).into();
        assert!(simulate(&mut oracle, PASSES), "the kernel settles");
        pending.push_back((a, b, oracle.y.val().to_u32()));
        adder.set_input("a", a.into());
        adder.set_input("b", b.into());
        adder.step();
        if pending.len() == fp::ADD_LATENCY as usize
            && let Some((a, b, want)) = pending.pop_front()
        {
            let got = adder.get_output("y") as u32;
            assert_eq!(
                got, want,
                "{a:08x} + {b:08x}: ours {got:08x}, rust-hdl {want:08x}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 40_001 - fp::ADD_LATENCY);
}

#[test]
fn the_int4_lane_equals_a_rust_hdl_kernel() {
    let mut rng = Pcg64::seed_from_u64(2);
    let mut oracle = Sma4Lane::default();
    oracle.connect_all();
    let mut lane = Interpreter::new(&sma4_lane(LaneSign::Signed).unwrap());
    for k in 0..20_000u32 {
        let (a, w): (u32, u32) = match k {
            // -8 * -8 and -8 * 7 eight times: the largest and the smallest sum.
            0 => (0x8888_8888, 0x8888_8888),
            1 => (0x8888_8888, 0x7777_7777),
            _ => (rng.random(), rng.random()),
        };
        oracle.a.next = u64::from(a).into();
        oracle.w.next = u64::from(w).into();
        assert!(simulate(&mut oracle, PASSES), "the kernel settles");
        lane.set_input("a", a.into());
        lane.set_input("w", w.into());
        lane.step();
        let (got, want) = (lane.get_output("sum") as u32, oracle.sum.val().to_u32());
        assert_eq!(
            got, want,
            "{a:08x} x {w:08x}: ours {got:03x}, rust-hdl {want:03x}"
        );
    }
}
