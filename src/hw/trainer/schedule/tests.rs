use super::{cycles, schedule_unit};
use crate::hw::bench::Bench;
use crate::num::constants::Constants;
use crate::num::schedule::{Schedule, StepScalars, tests::paper};

fn set_constants(bench: &mut Bench, c: &Constants) {
    for (name, value) in [
        ("beta1", c.beta1),
        ("beta2", c.beta2),
        ("adam_eps", c.adam_eps),
        ("lr_peak", c.lr_peak),
        ("lr_warmup_slope", c.lr_warmup_slope),
        ("lr_decay", c.lr_decay),
        ("lr_min", c.lr_min),
    ] {
        bench.set(name, value.to_bits() as u128);
    }
    bench.set("warmup_steps", c.warmup_steps as u128);
}

fn advance(bench: &mut Bench) {
    bench.set("start", 1);
    bench.step();
    bench.set("start", 0);
    let mut spent = 1;
    while bench.is("busy") {
        bench.step();
        spent += 1;
    }
    assert!(spent <= cycles() as usize, "{spent} cycles");
}

fn check(bench: &mut Bench, schedule: &Schedule, want: &StepScalars) {
    for (name, value) in [
        ("step", want.step),
        ("p1", schedule.p1.to_bits()),
        ("p2", schedule.p2.to_bits()),
        ("lr", want.lr.to_bits()),
        ("alpha", want.alpha.to_bits()),
        ("eps_t", want.eps_t.to_bits()),
    ] {
        assert_eq!(
            bench.get(name),
            value as u128,
            "{name} of step {}",
            want.step
        );
    }
}

#[test]
fn steps_equal_the_reference() {
    let mut model = paper();
    model.warmup_steps = 12;
    model.total_steps = 40;
    model.lr_floor = 0.1;
    let c = Constants::new(&model);
    let mut bench = Bench::new(&schedule_unit().unwrap(), 1);
    set_constants(&mut bench, &c);
    let mut schedule = Schedule::default();
    for _ in 0..50 {
        let want = schedule.advance(&c);
        advance(&mut bench);
        check(&mut bench, &schedule, &want);
    }
    bench.replay("schedule unit");
}

#[test]
fn a_loaded_state_goes_on() {
    let c = Constants::new(&paper());
    let mut bench = Bench::new(&schedule_unit().unwrap(), 1);
    set_constants(&mut bench, &c);
    // Large counts need rounding to FP32; the last one saturates.
    for step in [
        199,
        200,
        79_999,
        0x0100_0001,
        0x7fff_ffff,
        u32::MAX - 1,
        u32::MAX,
    ] {
        let mut schedule = Schedule {
            step,
            p1: 1e-3,
            p2: 0.37,
        };
        bench.set("load", 1);
        bench.set("load_step", step as u128);
        bench.set("load_p1", schedule.p1.to_bits() as u128);
        bench.set("load_p2", schedule.p2.to_bits() as u128);
        bench.step();
        bench.set("load", 0);
        assert_eq!(bench.get("step"), step as u128);
        let want = schedule.advance(&c);
        advance(&mut bench);
        check(&mut bench, &schedule, &want);
    }
}

#[test]
fn no_warm_up_and_underflowing_powers() {
    let mut model = paper();
    model.warmup_steps = 0;
    let c = Constants::new(&model);
    let mut bench = Bench::new(&schedule_unit().unwrap(), 1);
    set_constants(&mut bench, &c);
    let mut schedule = Schedule {
        step: 0,
        p1: 1.2e-38,
        p2: 1.0,
    };
    bench.set("load", 1);
    bench.set("load_p1", schedule.p1.to_bits() as u128);
    bench.set("load_p2", schedule.p2.to_bits() as u128);
    bench.step();
    bench.set("load", 0);
    for _ in 0..3 {
        let want = schedule.advance(&c);
        advance(&mut bench);
        check(&mut bench, &schedule, &want);
    }
    assert_eq!(schedule.p1, 0.0);
}
