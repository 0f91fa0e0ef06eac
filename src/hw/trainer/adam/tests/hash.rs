use crate::hw::bench::Bench;
use crate::hw::trainer::adam::hash::{LATENCY, threefry8};
use crate::num::threefry::threefry2x32;
use rand::RngExt;

#[test]
fn hashes_equal_the_reference() {
    let mut bench = Bench::new(&threefry8().unwrap(), 11);
    for key in [[0u32, 0], [u32::MAX, u32::MAX], [0x1319_8a2e, 0x0370_7344]] {
        bench.set("k0", key[0] as u128);
        bench.set("k1", key[1] as u128);
        let mut counters = vec![];
        for cycle in 0..60 {
            let counter: [u32; 2] = match cycle {
                0 => [0, 0],
                1 => [u32::MAX, u32::MAX],
                _ => bench.rng.random(),
            };
            bench.set("x0", counter[0].wrapping_add(key[0]) as u128);
            bench.set("x1", counter[1].wrapping_add(key[1]) as u128);
            counters.push(counter);
            if cycle >= LATENCY as usize {
                let want = threefry2x32(key, counters[cycle - LATENCY as usize]);
                assert_eq!(bench.get("y0"), want[0] as u128);
                assert_eq!(bench.get("y1"), want[1] as u128);
            }
            bench.step();
        }
    }
    bench.replay("threefry");
}

#[test]
fn text_is_stable() {
    let def = threefry8().unwrap();
    insta::assert_snapshot!(crate::dsl::print_module(&def, ""));
}
