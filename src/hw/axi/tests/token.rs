use crate::hw::axi::token::TokenInput;
use crate::hw::bench::Bench;
use crate::hw::trainer::READ_LATENCY;
use rand::RngExt;

const SHAPE: TokenInput = TokenInput {
    vocab: 201,
    seq_len: 11,
    lanes: 4,
};

/// Sends a packet; TLAST on its last beat. Returns the error pulses seen: (length, token).
fn send(bench: &mut Bench, tokens: &[u32], p: f64) -> (usize, usize) {
    let mut errors = (0, 0);
    let mut sent = 0;
    let mut offered = false;
    let mut quiet = 0;
    while quiet < 6 {
        offered = sent < tokens.len() && (offered || bench.chance(p));
        bench.set("s_axis_token_tvalid", offered as u128);
        let token = tokens.get(sent).copied().unwrap_or(0);
        bench.set("s_axis_token_tdata", token as u128);
        bench.set("s_axis_token_tkeep", 15);
        bench.set("s_axis_token_tlast", (sent + 1 == tokens.len()) as u128);
        if offered && bench.is("s_axis_token_tready") {
            sent += 1;
            offered = false;
        }
        quiet = if sent == tokens.len() { quiet + 1 } else { 0 };
        bench.step();
        errors.0 += bench.is("error_length") as usize;
        errors.1 += bench.is("error_token") as usize;
    }
    bench.set("s_axis_token_tvalid", 0);
    errors
}

fn sample(bench: &mut Bench) -> Vec<u32> {
    (0..=SHAPE.seq_len)
        .map(|_| bench.rng.random_range(0..SHAPE.vocab as u32))
        .collect()
}

fn take(bench: &mut Bench) {
    assert!(bench.is("available"));
    bench.set("take", 1);
    bench.step();
    bench.set("take", 0);
    assert!(!bench.is("available"));
}

/// Reads everything three ways and compares.
fn check(bench: &mut Bench, tokens: &[u32]) {
    for t in 0..SHAPE.seq_len {
        bench.set("tok_h_addr", t as u128);
        bench.set("tok_v_addr", (t / SHAPE.lanes) as u128);
        bench.set("tok_v_en", 1);
        bench.set("target_tile", (t / SHAPE.lanes) as u128);
        bench.step();
        // Later addresses must not matter: the data belong to the cycle of the address.
        bench.set("tok_h_addr", 0);
        bench.set("tok_v_en", 0);
        bench.set("tok_v_addr", 0);
        for _ in 1..READ_LATENCY {
            bench.step();
        }
        let lane = t % SHAPE.lanes;
        assert_eq!(bench.get("tok_h"), tokens[t] as u128);
        assert_eq!(bench.get(&format!("tok_lane_{lane}")), tokens[t] as u128);
        let target = tokens[t + 1] as u128;
        assert_eq!(bench.get(&format!("target_{lane}")), target);
        // Kept without enable.
        bench.step();
        assert_eq!(bench.get(&format!("tok_lane_{lane}")), tokens[t] as u128);
    }
}

#[test]
fn samples_arrive_while_one_runs() {
    let mut bench = Bench::new(&SHAPE.build().unwrap(), 3);
    let mut current = sample(&mut bench);
    assert_eq!(send(&mut bench, &current, 1.0), (0, 0));
    take(&mut bench);
    for p in [1.0, 0.4, 0.7] {
        let next = sample(&mut bench);
        assert_eq!(send(&mut bench, &next, p), (0, 0));
        check(&mut bench, &current);
        assert!(!bench.is("s_axis_token_tready") || bench.is("available"));
        take(&mut bench);
        current = next;
        check(&mut bench, &current);
    }
    bench.replay("token input");
}

#[test]
fn wrong_packets_are_dropped_whole() {
    let mut bench = Bench::new(&SHAPE.build().unwrap(), 4);
    let good = sample(&mut bench);
    assert_eq!(send(&mut bench, &good, 1.0), (0, 0));
    take(&mut bench);
    let mut bad_token = sample(&mut bench);
    bad_token[3] = 201;
    bad_token[7] = u32::MAX;
    let short = &good[..5];
    let mut long = good.clone();
    long.extend([1, 2, 3]);
    for (packet, errors) in [
        (&bad_token[..], (0, 1)),
        (short, (1, 0)),
        (&long, (1, 0)),
        (&good[..1], (1, 0)),
    ] {
        assert_eq!(send(&mut bench, packet, 0.8), errors);
        assert!(!bench.is("available"));
        check(&mut bench, &good);
    }
    // A bad last token must not slip through.
    let mut late = good.clone();
    late[SHAPE.seq_len] = 201;
    assert_eq!(send(&mut bench, &late, 1.0), (0, 1));
    assert!(!bench.is("available"));
    let next = sample(&mut bench);
    assert_eq!(send(&mut bench, &next, 1.0), (0, 0));
    take(&mut bench);
    check(&mut bench, &next);
    bench.replay("token input errors");
}

#[test]
fn the_third_sample_waits() {
    let mut bench = Bench::new(&SHAPE.build().unwrap(), 5);
    let first = sample(&mut bench);
    send(&mut bench, &first, 1.0);
    bench.set("s_axis_token_tvalid", 1);
    for _ in 0..10 {
        bench.step();
    }
    assert!(!bench.is("s_axis_token_tready"));
    assert!(bench.is("available"));
}

#[test]
fn one_lane_per_token_and_one_tile() {
    for (seq_len, lanes) in [(8, 4), (3, 8), (4, 4)] {
        let shape = TokenInput {
            vocab: 16,
            seq_len,
            lanes,
        };
        assert!(shape.build().is_ok(), "{shape:?}");
    }
}
