use crate::hw::axi::result::{HEADER_WORDS, result_output};
use crate::hw::bench::Bench;
use crate::num::fp32;
use rand::RngExt;

const VOCAB: usize = 37;

fn logit(v: u128) -> u128 {
    (v * 0x0101_0101) ^ 0x5a00_0000
}

/// Runs one packet and returns its words.
fn packet(bench: &mut Bench, p: f64) -> Vec<u128> {
    bench.set("start", 1);
    bench.step();
    bench.set("start", 0);
    let mut words = vec![];
    let mut addresses = [0; 2];
    let mut last = false;
    for _ in 0..5000 {
        let ready = bench.chance(p);
        bench.set("m_axis_result_tready", ready as u128);
        // Logit buffer: data two cycles after the address.
        bench.set("logit_rdata", logit(addresses[1]));
        addresses = [bench.get("logit_raddr"), addresses[0]];
        if ready && bench.is("m_axis_result_tvalid") {
            assert!(!last, "a word after TLAST");
            words.push(bench.get("m_axis_result_tdata"));
            last = bench.is("m_axis_result_tlast");
        }
        let busy = bench.is("busy");
        bench.step();
        if !busy {
            break;
        }
    }
    assert!(last && !bench.is("busy"));
    words
}

#[test]
fn packets_carry_loss_counters_and_logits() {
    let mut bench = Bench::new(&result_output(VOCAB).unwrap(), 9);
    let scale = fp32::from_f64(2f64.powi(-24) / 128.0);
    bench.set("loss_scale", scale.to_bits() as u128);
    for round in 0..24 {
        let q24 = match round {
            0 => 0,
            1 => 1,
            2 => 0xffff_ffff_ffff,
            // Ties of the rounding, to an even and to an odd mantissa.
            3 => 0x0100_0001u64,
            4 => 0x0100_0003,
            _ => bench.rng.random::<u64>() >> bench.rng.random_range(16..60),
        };
        let with_logits = round % 2;
        let cycles = bench.rng.random::<u64>();
        bench.set("loss_q24", q24 as u128);
        bench.set("correct", 100 + round);
        bench.set("step", 7 + round);
        bench.set("cycles", cycles as u128);
        bench.set("with_logits", with_logits);
        let words = packet(&mut bench, [1.0, 0.5, 0.1][round as usize % 3]);
        let loss = fp32::mul(fp32::from_i64(q24 as i64), scale);
        let mut want = vec![
            loss.to_bits() as u128,
            (q24 & 0xffff_ffff) as u128,
            (q24 >> 32) as u128,
            100 + round,
            7 + round,
            (cycles & 0xffff_ffff) as u128,
            (cycles >> 32) as u128,
        ];
        assert_eq!(want.len(), HEADER_WORDS);
        if with_logits == 1 {
            want.extend((0..VOCAB as u128).map(logit));
        }
        assert_eq!(words, want, "round {round}");
        assert_eq!(bench.get("loss"), want[0]);
    }
    bench.replay("result output");
}
