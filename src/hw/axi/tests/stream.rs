use crate::dsl::ModuleDef;
use crate::hw::axi::stream::{fifo, skid};
use crate::hw::bench::Bench;
use std::collections::VecDeque;
use std::sync::Arc;

/// Random words through a buffer with given rates of valid and ready. Returns the cycles used.
fn pump(bench: &mut Bench, words: usize, p_valid: f64, p_ready: f64) -> usize {
    let mut sent = VecDeque::new();
    let (mut to_send, mut received, mut cycles) = (words, 0, 0);
    let mut offer: Option<u128> = None;
    let mut held: Option<u128> = None;
    while received < words {
        // A source keeps an offered word until it is taken.
        if offer.is_none() && to_send > 0 && bench.chance(p_valid) {
            use rand::RngExt;
            offer = Some(bench.rng.random_range(0..1u64 << 33) as u128);
            to_send -= 1;
        }
        let take = bench.chance(p_ready);
        bench.set("s_valid", offer.is_some() as u128);
        bench.set("s_data", offer.unwrap_or(0));
        bench.set("m_ready", take as u128);
        if bench.is("m_valid") {
            let data = bench.get("m_data");
            assert!(held.is_none_or(|h| h == data), "data changed while stalled");
            held = (!take).then_some(data);
            if take {
                assert_eq!(Some(data), sent.pop_front());
                received += 1;
            }
        } else {
            assert_eq!(held, None, "valid fell while stalled");
        }
        if offer.is_some() && bench.is("s_ready") {
            sent.extend(offer.take());
        }
        bench.step();
        cycles += 1;
        assert!(cycles < 100 * words, "no progress");
    }
    cycles
}

fn check(def: Arc<ModuleDef>, name: &str) {
    let mut bench = Bench::new(&def, 1);
    for (p_valid, p_ready) in [(0.5, 0.5), (1.0, 0.3), (0.3, 1.0), (0.9, 0.9)] {
        pump(&mut bench, 300, p_valid, p_ready);
    }
    let cycles = pump(&mut bench, 500, 1.0, 1.0);
    assert!(
        cycles <= 503,
        "full rate took {cycles} cycles for 500 words"
    );
    bench.replay(name);
}

#[test]
fn skid_keeps_order_and_rate() {
    check(skid(33).unwrap(), "skid");
}

#[test]
fn fifo_keeps_order_and_rate() {
    for depth in [2, 8] {
        check(fifo(33, depth).unwrap(), "fifo");
    }
}

#[test]
fn fifo_holds_its_depth() {
    let mut bench = Bench::new(&fifo(33, 4).unwrap(), 1);
    // Not ready in reset; ready from the first cycle after it.
    assert!(!bench.is("s_ready"));
    bench.step();
    bench.set("s_valid", 1);
    for held in 0..4 {
        assert!(bench.is("s_ready"), "{held} words held");
        bench.step();
    }
    assert!(!bench.is("s_ready"));
}

#[test]
fn nothing_passes_backwards_within_a_cycle() {
    for def in [skid(33).unwrap(), fifo(33, 4).unwrap()] {
        for port in ["s_ready", "m_valid"] {
            let k = def.output_index(port).unwrap();
            assert_eq!(def.comb_deps[k], &[] as &[u32], "{} {port}", def.name);
        }
    }
}

#[test]
fn skid_reads_like_handwriting() {
    insta::assert_snapshot!(crate::dsl::print_module(&skid(8).unwrap(), ""));
}
