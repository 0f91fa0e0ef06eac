//! The RTL in Verilator against the exact integer dot product.

use std::path::PathBuf;

use nfgen::bitnet::backend::Backend;
use nfgen::bitnet::cpu::project_by_definition;
use nfgen::bitnet::quant::Activations;
use nfgen::bitnet::ternary::{StreamFormat, TernaryMatrix, weight_stream};
use nfgen::cgla::backend::ArrayBackend;
use nfgen::cgla::experiments;
use nfgen::cgla::model::ArrayModel;
use nfgen::cgla::paper::{self, Combine, Streams};
use nfgen::cgla::schedule::WidePlan;
use nfgen::cgla::timing::MemoryModel;
use nfgen::cgla::{ArrayConfig, LaneSign, Launch, LaunchResult, Machine, int8};
use nfgen::sim::cgla::{Simulator, Stalls};
use rand::{RngExt, SeedableRng};

fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("verilated")
}

fn simulator(config: ArrayConfig, stalls: Stalls) -> Option<Simulator> {
    if which::which("verilator").is_err() {
        assert!(
            std::env::var_os("NFGEN_REQUIRE_TOOLS").is_none(),
            "verilator is required"
        );
        println!("skipped: verilator not found");
        return None;
    }
    Some(Simulator::start(config, MemoryModel::default(), stalls, &cache()).unwrap())
}

fn random(rows: usize, cols: usize, tokens: usize, seed: u64) -> (TernaryMatrix, Activations) {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let trits: Vec<i8> = (0..rows * cols).map(|_| rng.random_range(-1..=1)).collect();
    let values = (0..tokens * cols).map(|_| rng.random()).collect();
    (
        TernaryMatrix::from_trits(rows, cols, &trits, 1.0).unwrap(),
        Activations::from_int8(tokens, cols, values).unwrap(),
    )
}

fn small(lane_sign: LaneSign) -> ArrayConfig {
    ArrayConfig {
        rows: 16,
        ports: 2,
        lmm_words: 128,
        lane_sign,
    }
}

const SHAPES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (4, 64, 1),
    (5, 130, 2),
    (37, 300, 3),
    (64, 512, 1),
    (33, 1000, 1),
    (9, 2600, 1),
    (130, 777, 5),
];

#[test]
fn model_equals_the_definition() {
    for lane_sign in [LaneSign::UnsignedLo, LaneSign::Signed] {
        for format in [StreamFormat::TwoBit, StreamFormat::FiveTrits] {
            let model = ArrayModel::new(small(lane_sign), MemoryModel::default()).unwrap();
            let mut backend = ArrayBackend::new(model, format);
            for (seed, (rows, cols, tokens)) in SHAPES.into_iter().enumerate() {
                let (w, a) = random(rows, cols, tokens, seed as u64);
                assert_eq!(
                    backend.project(&w, &a).unwrap(),
                    project_by_definition(&w, &a),
                    "{rows} x {cols}, {tokens} tokens, {format:?}, {lane_sign:?}"
                );
            }
        }
    }
}

#[test]
fn rtl_equals_the_definition() {
    for lane_sign in [LaneSign::UnsignedLo, LaneSign::Signed] {
        for format in [StreamFormat::TwoBit, StreamFormat::FiveTrits] {
            let stalls = Stalls { busy: 0.3, seed: 7 };
            let Some(rtl) = simulator(small(lane_sign), stalls) else {
                return;
            };
            let mut backend = ArrayBackend::new(rtl, format);
            for (seed, (rows, cols, tokens)) in SHAPES.into_iter().enumerate() {
                let (w, a) = random(rows, cols, tokens, seed as u64);
                assert_eq!(
                    backend.project(&w, &a).unwrap(),
                    project_by_definition(&w, &a),
                    "{rows} x {cols}, {tokens} tokens, {format:?}, {lane_sign:?}"
                );
            }
        }
    }
}

/// Runs every launch from its printed text.
struct FromText<'a>(&'a mut dyn Machine);

impl Machine for FromText<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn config(&self) -> &ArrayConfig {
        self.0.config()
    }

    fn place(&mut self, bytes: &[u8]) -> nfgen::cgla::Result<u64> {
        self.0.place(bytes)
    }

    fn run(&mut self, launch: &Launch) -> nfgen::cgla::Result<LaunchResult> {
        let read = Launch::parse(&launch.to_string(), self.0.config())?;
        assert_eq!(&read, launch);
        self.0.run(&read)
    }
}

fn bytes(count: usize, seed: u64) -> Vec<i8> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    (0..count).map(|_| rng.random()).collect()
}

/// Everything that only configuration words change, on one machine.
fn all_programs(machine: &mut dyn Machine) {
    let machine = &mut FromText(machine);
    // The wide schedule, both weight streams, K and N that divide nothing.
    let (w, mut a) = random(21, 777, 2, 11);
    if machine.config().lane_sign == LaneSign::Signed {
        // 120 to 127 wrap in signed lanes; the backend corrects them, a bare launch does not.
        a.values.iter_mut().for_each(|v| *v = (*v).min(119));
    }
    for format in [StreamFormat::TwoBit, StreamFormat::FiveTrits] {
        let at = machine.place(&weight_stream(&w, format)).unwrap();
        let plan = WidePlan::new(machine.config(), 21, 777, 2, format).unwrap();
        let launch = plan.launch(&a.values, at, true).unwrap();
        let outputs = machine.run(&launch).unwrap().outputs;
        assert_eq!(
            plan.collect(&outputs).unwrap(),
            project_by_definition(&w, &a),
            "wide, {format:?}"
        );
    }

    // The published schedule, unfused and fused, over several windows.
    let weights: Vec<i8> = bytes(3000, 3).iter().map(|w| w.rem_euclid(3) - 1).collect();
    let acts = bytes(3000, 4);
    let exact: i32 = dot(&weights, &acts);
    let listed: i32 = weights
        .iter()
        .zip(&acts)
        .filter(|&(_, &a)| a >= 120)
        .map(|(&w, _)| 256 * i32::from(w))
        .sum();
    let streams = Streams::two_fragments(&weights, &acts);
    let (sums, _) = paper::run(machine, &streams, Combine::Unfused).unwrap();
    assert_eq!(sums[0] + 16 * sums[1] + listed, exact, "unfused");
    let (sums, _) = paper::run(machine, &streams, Combine::Fused).unwrap();
    assert_eq!(sums[0] + listed, exact, "fused");

    // int8 x int8, both operands over their whole range.
    let (rows, cols) = (21, 150);
    let weights = bytes(rows * cols, 5);
    let acts = Activations::from_int8(2, cols, bytes(2 * cols, 6)).unwrap();
    let (got, _) = int8::project(machine, &weights, rows, &acts).unwrap();
    let expected: Vec<i32> = (0..2)
        .flat_map(|t| weights.chunks_exact(cols).map(move |w| (t, w)))
        .map(|(t, w)| dot(w, acts.row(t)))
        .collect();
    assert_eq!(got, expected, "int8");

    // A user's integer program from text: max(a + b, 0) >> 1 on both lanes, every step stored.
    let last = machine.config().group_rows() - 1;
    let data = |low: i64, high: i64| {
        let lane = |v: i64| u128::from(v as i32 as u32);
        format!("{:x}", lane(low) | lane(high) << 32)
    };
    let rows = [(5, -9), (-100, 40), (7, 7)];
    let words = |f: &dyn Fn(usize) -> (i64, i64)| -> String {
        let list: Vec<String> = (0..3).map(|i| data(f(i).0, f(i).1)).collect();
        list.join(",")
    };
    let text = format!(
        "# halved rectified sums\n\
         group 0 results=6\n\
         row 0..{last} ex1=pass s1=x dest=none\n\
         row 0..0 ex1=add s1=a s2=b dest=x a=0,1,0 b=8,1,0 streamb\n\
         row 1..1 ex1=max s1=x s2=r r=0x0 ex3=sra n=1 dest=x\n\
         row {last}..{last} ex1=pass s1=x store=every wide\n\
         load pairs=0..0 into=fill base=0 data={}\n\
         load pairs=0..0 into=fill base=8 data={}\n\
         execute outputs=1 steps=3 store=every final\n",
        words(&|i| rows[i]),
        words(&|i| (10 * i as i64, 100)),
    );
    let launch = Launch::parse(&text, machine.config()).unwrap();
    assert_eq!(
        Launch::parse(&launch.to_string(), machine.config()).unwrap(),
        launch
    );
    let result = machine.run(&launch).unwrap();
    let expected: Vec<u32> = rows
        .iter()
        .enumerate()
        .flat_map(|(i, &(low, high))| [low + 10 * i as i64, high + 100])
        .map(|v| (v.max(0) >> 1) as u32)
        .collect();
    assert_eq!(result.outputs[0], expected, "user program");
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i32::from(a) * i32::from(b))
        .sum()
}

#[test]
fn the_model_runs_every_program() {
    for sign in [LaneSign::UnsignedLo, LaneSign::Signed] {
        let mut model = ArrayModel::new(small(sign), MemoryModel::default()).unwrap();
        all_programs(&mut model);
    }
}

#[test]
fn one_rtl_build_runs_every_program() {
    let stalls = Stalls { busy: 0.2, seed: 3 };
    let Some(mut rtl) = simulator(small(LaneSign::UnsignedLo), stalls) else {
        return;
    };
    all_programs(&mut rtl);
    let mut backend = ArrayBackend::new(rtl, StreamFormat::TwoBit);
    let (w, a) = random(40, 600, 1, 9);
    assert_eq!(
        backend.project(&w, &a).unwrap(),
        project_by_definition(&w, &a)
    );
}

/// Sixteen-bit or saturating accumulators fail here.
#[test]
fn extreme_rows_are_exact_on_the_model() {
    let model = ArrayModel::new(ArrayConfig::default(), MemoryModel::default()).unwrap();
    let mut backend = ArrayBackend::new(model, StreamFormat::TwoBit);
    let weights = TernaryMatrix::from_trits(4, 6912, &[1; 4 * 6912], 1.0).unwrap();
    for (value, expected) in [(127i8, 877_824), (-128, -884_736)] {
        let acts = Activations::from_int8(1, 6912, vec![value; 6912]).unwrap();
        assert_eq!(backend.project(&weights, &acts).unwrap(), [expected; 4]);
    }
}

/// A stalled memory changes the time, never the results; the same seed gives the same time.
#[test]
fn seeds_and_stalls_change_cycles_and_nothing_else() {
    let (w, a) = random(64, 512, 1, 12);
    let expected = project_by_definition(&w, &a);
    let mut cycles = vec![];
    for (busy, seed) in [(0.0, 1), (0.0, 1), (0.0, 2), (0.6, 1)] {
        let Some(rtl) = simulator(small(LaneSign::UnsignedLo), Stalls { busy, seed }) else {
            return;
        };
        let mut backend = ArrayBackend::new(rtl, StreamFormat::TwoBit);
        assert_eq!(backend.project(&w, &a).unwrap(), expected);
        cycles.push(backend.stats().phases.total);
    }
    assert_eq!(cycles[0], cycles[1]);
    assert_ne!(cycles[0], cycles[2]);
    assert_ne!(cycles[0], cycles[3]);
}

/// The cycle model stands for the simulation in the whole-model figures.
#[test]
fn the_cycle_model_is_within_two_percent() {
    for format in [StreamFormat::TwoBit, StreamFormat::FiveTrits] {
        let build = small(LaneSign::UnsignedLo);
        let Some(rtl) = simulator(build, Stalls::default()) else {
            return;
        };
        let mut simulated = ArrayBackend::new(rtl, format);
        let model = ArrayModel::new(build, MemoryModel::default()).unwrap();
        let mut modelled = ArrayBackend::new(model, format);
        for (rows, cols) in [(640, 2560), (256, 5120), (701, 1000)] {
            let (w, a) = random(rows, cols, 1, 13);
            let cycles = |backend: &mut dyn Backend| {
                let before = backend.stats().phases.total;
                backend.project(&w, &a).unwrap();
                backend.stats().phases.total - before
            };
            let (s, m) = (cycles(&mut simulated), cycles(&mut modelled));
            let deviation = m as f64 / s as f64 - 1.0;
            assert!(deviation.abs() < 0.02, "{rows} x {cols}: {m} against {s}");
        }
    }
}

/// So does it for the published mapping, whose chain runs through linked groups.
#[test]
fn the_cycle_model_of_linked_groups_is_within_two_percent() {
    let build = small(LaneSign::UnsignedLo);
    let Some(mut rtl) = simulator(build, Stalls::default()) else {
        return;
    };
    let mut model = ArrayModel::new(build, MemoryModel::default()).unwrap();
    let points = |machine: &mut dyn Machine| {
        let mut value = 0i8;
        experiments::kernel_points(machine, || {
            value = value.wrapping_mul(77).wrapping_add(29);
            value
        })
        .unwrap()
    };
    for (s, m) in points(&mut rtl).iter().zip(&points(&mut model)) {
        let deviation = m.cycles.total as f64 / s.cycles.total as f64 - 1.0;
        assert!(deviation.abs() < 0.02, "{}: {m:?} against {s:?}", s.words);
        assert!(
            m.cycles.drain.abs_diff(s.cycles.drain) <= 30,
            "{m:?} against {s:?}"
        );
    }
}

/// An address outside the memory is an error of the launch, not a wrong result.
#[test]
fn an_error_response_of_the_memory_is_reported() {
    let stalls = Stalls { busy: 0.1, seed: 5 };
    let Some(mut rtl) = simulator(small(LaneSign::UnsignedLo), stalls) else {
        return;
    };
    let (w, a) = random(16, 256, 1, 14);
    let format = StreamFormat::TwoBit;
    let plan = WidePlan::new(rtl.config(), 16, 256, 1, format).unwrap();
    let outside = plan.launch(&a.values, 1 << 31, true).unwrap();
    let text = rtl.run(&outside).unwrap_err().to_string();
    assert!(text.contains("read outside the memory"), "{text}");
    // The next launch starts clean.
    let at = rtl.place(&weight_stream(&w, format)).unwrap();
    let outputs = rtl
        .run(&plan.launch(&a.values, at, true).unwrap())
        .unwrap()
        .outputs;
    assert_eq!(
        plan.collect(&outputs).unwrap(),
        project_by_definition(&w, &a)
    );
}
