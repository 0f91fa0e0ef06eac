//! The generated trainer in simulation against the reference: every weight, both moments, every
//! loss, on every bit.

#[path = "support/machine.rs"]
mod machine;
#[path = "support/tools.rs"]
mod tools;

use machine::{machine, model, options, windows};
use nfgen::compile::trainer::compile;
use nfgen::config::{ModelConfig, load_device};
use nfgen::emit::TextFile;
use nfgen::reference::{State, Trainer};
use nfgen::sim::compare::{compare, to_words};
use nfgen::sim::driver::DriverError;
use nfgen::sim::icarus;
use nfgen::sim::lint::lint;
use nfgen::sim::trainer::{self as sim, Session, SimError};
use nfgen::trainer::layout::weight_shapes;
use nfgen::trainer::plan::{Options, Plan, Target};

fn verilator() -> bool {
    tools::tool("verilator").is_some()
}

/// Trains in RTL and in the reference and returns the report.
fn train(model: &ModelConfig, array: usize, steps: usize, stalls: f64) -> sim::SimReport {
    let (plan, core) = machine(model, array, None);
    let options = options(stalls, 7);
    let built = sim::build(&core, None, &options).expect("a simulation model");
    let state = State::init(model);
    let (report, _) = sim::run(
        &plan,
        &built,
        &state,
        &windows(model, steps),
        &options,
        &mut |_| {},
    )
    .expect("a simulation");
    assert!(
        report.words_compared >= (steps * 3 * model.parameters()) as u64,
        "{report:?}"
    );
    assert_eq!(report.verdict, "match", "{report:#?}");
    let planned = plan.cycles_per_sample() as f64;
    assert!(
        (report.cycles_per_step / planned - 1.0).abs() < 0.02,
        "planned {planned} cycles, simulated {}",
        report.cycles_per_step
    );
    report
}

#[test]
fn trains_through_warm_up_and_decay_with_stalls() {
    if !verilator() {
        return;
    }
    let model = model("tiny", &["warmup_steps=2", "total_steps=9"]);
    let report = train(&model, 4, 10, 0.3);
    assert!(report.stall_cycles > 0);
}

#[test]
fn takes_shapes_that_divide_nothing_and_every_format() {
    if !verilator() {
        return;
    }
    let odd = [
        "embed_dim=9",
        "heads=3",
        "ff_dim=13",
        "seq_len=7",
        "layers=2",
        "vocab=131",
    ];
    for format in [
        &[
            "weight_format=bf16",
            "moment_format=fp32",
            "rounding=nearest",
        ][..],
        &[
            "weight_format=bf16",
            "moment_format=bf16",
            "rounding=stochastic",
            "head_combine=sum",
        ],
        &[
            "weight_format=fp24",
            "moment_format=bf16",
            "layernorm_optimizer=sgd",
            "gelu=erf",
        ],
        &["moment_format=int8", "weight_format=fp24"],
        &[
            "moment_format=int8",
            "weight_format=bf16",
            "rounding=stochastic",
            "layernorm_optimizer=sgd",
        ],
    ] {
        let set: Vec<&str> = odd.iter().chain(format).copied().collect();
        train(&model("tiny", &set), 4, 2, 0.0);
    }
}

/// Rows of 44 + 6 and of 27 elements on an array whose tiles divide neither.
#[test]
fn block_moments_equal_the_reference_with_every_scale_compared() {
    if !verilator() {
        return;
    }
    let set = [
        "moment_format=int8",
        "embed_dim=9",
        "heads=3",
        "ff_dim=50",
        "seq_len=7",
        "layers=2",
        "vocab=131",
    ];
    let model = model("tiny", &set);
    let report = train(&model, 5, 4, 0.3);
    let blocks: u64 = weight_shapes(&model)
        .iter()
        .map(|(rows, columns)| (rows * columns.div_ceil(44)) as u64)
        .sum();
    // Four words of the result and four of the schedule.
    let words = 3 * model.parameters() as u64 + 2 * blocks + 8;
    assert_eq!(report.words_compared, 4 * words);
}

#[test]
fn two_arrays_give_the_same_weights() {
    if !verilator() {
        return;
    }
    for moments in ["moment_format=bf16", "moment_format=int8"] {
        two_arrays(&model("tiny", &["rounding=stochastic", moments]));
    }
}

fn two_arrays(model: &ModelConfig) {
    let mut states = vec![];
    for (array, lanes, stalls) in [(4, 2, 0.0), (6, 1, 0.2)] {
        let (plan, core) = machine(model, array, Some(lanes));
        let options = options(stalls, 3);
        let built = sim::build(&core, None, &options).expect("a simulation model");
        let mut session = Session::start(&plan, &built, &options).expect("a session");
        session
            .write_state(&to_words(model, &State::init(model)))
            .expect("written");
        for window in windows(model, 5) {
            session.train(&window).expect("trained");
        }
        states.push(session.read_state().expect("read"));
    }
    assert_eq!(states[0], states[1]);
}

#[test]
fn a_saved_run_continues_to_the_same_bit() {
    if !verilator() {
        return;
    }
    for moments in ["moment_format=bf16", "moment_format=int8"] {
        saved_and_continued(&model("tiny", &["rounding=stochastic", moments]));
    }
}

fn saved_and_continued(model: &ModelConfig) {
    let (plan, core) = machine(model, 4, None);
    let options = options(0.1, 5);
    let built = sim::build(&core, None, &options).expect("a simulation model");
    let start = || Session::start(&plan, &built, &options).expect("a session");
    let samples = windows(model, 20);
    let initial = to_words(model, &State::init(model));

    let mut whole = start();
    whole.write_state(&initial).expect("written");
    for window in &samples {
        whole.train(window).expect("trained");
    }
    let mut first = start();
    first.write_state(&initial).expect("written");
    for window in &samples[..10] {
        first.train(window).expect("trained");
    }
    let saved = first.read_state().expect("read");
    let mut second = start();
    second.write_state(&saved).expect("restored");
    for window in &samples[10..] {
        second.train(window).expect("trained");
    }
    let (a, b) = (
        whole.read_state().expect("read"),
        second.read_state().expect("read"),
    );
    assert_eq!(a.step, 20);
    assert_eq!(a, b);
}

#[test]
fn forward_only_gives_the_reference_logits_and_changes_nothing() {
    if !verilator() {
        return;
    }
    let model = model("tiny", &[]);
    let (plan, core) = machine(&model, 4, None);
    let options = options(0.2, 9);
    let built = sim::build(&core, None, &options).expect("a simulation model");
    let mut session = Session::start(&plan, &built, &options).expect("a session");
    let state = State::init(&model);
    session
        .write_state(&to_words(&model, &state))
        .expect("written");
    let register = |name: &str| core.registers.find(name).expect("a register").offset;
    let mut reference = Trainer::new(&model, state.clone(), 1).expect("a trainer");
    for (n, window) in windows(&model, 3).iter().enumerate() {
        let position = (n * 3) % model.seq_len;
        session
            .driver()
            .write_register(register("LOGIT_POSITION"), position as u32)
            .expect("written");
        let packet = session.evaluate(window).expect("evaluated");
        let logits = reference.logits(&window[..model.seq_len]).expect("logits");
        let row = &logits[position * model.vocab..][..model.vocab];
        let want: Vec<u32> = row.iter().map(|x| x.to_bits()).collect();
        assert_eq!(packet[7..], want[..], "logits of position {position}");
        let result = reference.eval(window).expect("evaluated");
        assert_eq!(u64::from(packet[1]), result.loss_q24 as u64);
        assert_eq!(packet[3], result.correct as u32);
    }
    let after = session.read_state().expect("read");
    let comparison = compare(&model, 1, &to_words(&model, &state), &after);
    assert_eq!((comparison.mismatches, comparison.first), (0, None));
}

#[test]
fn registers_follow_their_description_and_bad_samples_are_flagged() {
    if !verilator() {
        return;
    }
    let model = model("tiny", &[]);
    let (plan, core) = machine(&model, 4, None);
    let options = options(0.3, 11);
    let built = sim::build(&core, None, &options).expect("a simulation model");
    let mut session = Session::start(&plan, &built, &options).expect("a session");
    let register = |name: &str| core.registers.find(name).expect("a register").offset;
    let driver = session.driver();
    assert_eq!(
        driver.read_register(register("ID")).expect("read"),
        0x4E46_5452
    );
    assert_eq!(
        driver.read_register(register("PARAM_COUNT")).expect("read"),
        model.parameters() as u32
    );
    // Byte strobes, read-only and unmapped addresses.
    let scratch = register("SCRATCH");
    driver
        .write_register(scratch, 0x1122_3344)
        .expect("written");
    driver
        .write_register_raw(scratch, 0xAABB_CCDD, 0b0101)
        .expect("written");
    assert_eq!(driver.read_register(scratch).expect("read"), 0x11BB_33DD);
    assert_eq!(
        driver
            .write_register_raw(register("ID"), 1, 0xF)
            .expect("answered"),
        2
    );
    assert_eq!(driver.read_register_raw(0xFFC).expect("answered").1, 2);
    // A token that is not below vocab: the packet is dropped, the flag rises, no result comes.
    driver
        .write_register(register("IRQ_ENABLE"), 3)
        .expect("written");
    let mut window = windows(&model, 1).remove(0);
    window[2] = model.vocab as u32;
    driver.send_tokens(&window).expect("queued");
    driver.wait_interrupt(10_000).expect("an interrupt");
    let status = driver.read_register(register("STATUS")).expect("read");
    assert_eq!(status >> 5 & 1, 1, "status {status:#x}");
    assert!(matches!(
        driver.receive_result(5_000),
        Err(DriverError::NoProgress { .. })
    ));
    // Soft reset clears the flag; a good sample then trains.
    driver
        .write_register(register("CONTROL"), 16)
        .expect("written");
    let status = driver.read_register(register("STATUS")).expect("read");
    assert_eq!(status >> 4 & 7, 0, "status {status:#x}");
    session
        .write_state(&to_words(&model, &State::init(&model)))
        .expect("written");
    session.train(&windows(&model, 1)[0]).expect("trained");
    session.driver().counters().expect("no stream rule broken");
}

#[test]
fn one_changed_operator_is_found_and_named() {
    if !verilator() {
        return;
    }
    let model = model("tiny", &[]);
    let (plan, core) = machine(&model, 4, None);
    let options = options(0.0, 1);
    let mut rtl: Vec<(String, String)> = core
        .rtl
        .iter()
        .map(|f| (f.name.clone(), f.text.clone()))
        .collect();
    let lane = rtl
        .iter_mut()
        .find(|(name, _)| name == "nf_normaliser.v")
        .expect("the normaliser's file");
    let changed = lane.1.replacen(" + ", " - ", 1);
    assert_ne!(changed, lane.1);
    lane.1 = changed;
    let built = sim::build(&core, Some(&rtl), &options).expect("a simulation model");
    let outcome = sim::run(
        &plan,
        &built,
        &State::init(&model),
        &windows(&model, 2),
        &options,
        &mut |_| {},
    );
    match outcome {
        Ok((report, _)) => {
            assert_eq!(report.verdict, "mismatch");
            let first = report.first_difference.expect("a first difference");
            assert_ne!(first.expected_bits, first.got_bits);
        }
        Err(SimError::Driver(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn icarus_sees_no_x_in_the_smallest_model() {
    if tools::tool("iverilog").is_none() {
        return;
    }
    for set in [&[][..], &["moment_format=int8"]] {
        let model = model("tiny", set);
        let (plan, core) = machine(&model, 4, None);
        let folder = tempfile::tempdir().expect("a folder");
        let report = icarus::run(
            &plan,
            &core,
            &State::init(&model),
            &windows(&model, 1),
            folder.path(),
        )
        .expect("a run");
        assert!(report.matched, "{}", report.output);
    }
}

#[test]
fn a_hand_changed_file_ends_with_exit_1_and_a_waveform() {
    if !verilator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let nfgen = |arguments: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_nfgen"))
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .expect("nfgen runs")
    };
    let machine = ["--model", "tiny", "--device", "zcu102", "--array", "4"];
    let emitted = nfgen(&[&["emit", "-o", "out"], &machine[..]].concat());
    assert_eq!(emitted.status.code(), Some(0), "{emitted:?}");
    let file = folder.path().join("out/rtl/nf_fp32_mul.v");
    let text = std::fs::read_to_string(&file).expect("an emitted file");
    let changed = text.replacen(" ^ ", " | ", 1);
    assert_ne!(text, changed);
    std::fs::write(&file, changed).expect("written");
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/data/corpus.txt");
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/models");
    let run = [
        "sim", "--rtl", "out/rtl", "--corpus", corpus, "--steps", "2", "--cache", cache, "--json",
    ];
    let outcome = nfgen(&[&run, &machine[..]].concat());
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    assert_eq!(report["verdict"], "mismatch");
    let first = &report["first_difference"];
    assert_ne!(first["expected_bits"], first["got_bits"]);
    assert!(
        first["tensor"].is_string() && first["ulps"].is_u64(),
        "{first}"
    );
    let waveform = report["waveform"].as_str().expect("a waveform");
    let bytes = std::fs::metadata(folder.path().join(waveform)).expect("a file");
    assert!(bytes.len() > 1000);
}

/// What `make lint` does for `tiny`, and Yosys, at the size of the paper.
#[test]
fn the_full_size_design_is_lint_clean() {
    if std::env::var_os("NFGEN_FULL").is_none() {
        eprintln!("skipped: three linters over the 334K design take minutes (make test-full)");
        return;
    }
    let model = model("shakespeare-334k-7b", &[]);
    let device = load_device("zcu102").expect("in the catalogue");
    let target = Target::of(&device, device.clock_mhz);
    let plan = Plan::new(&model, &target, &Options::default()).expect("a plan");
    assert!(plan.fits());
    let core = compile(&plan, "test", "").expect("a core");
    let texts = |files: &[TextFile]| -> Vec<(String, String)> {
        let pair = |f: &TextFile| (f.name.clone(), f.text.clone());
        files.iter().map(pair).collect()
    };
    let report =
        lint(&core.top, &texts(&core.rtl), &texts(&core.memories)).expect("the linters run");
    for name in &report.missing {
        assert!(tools::tool(name).is_none());
    }
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
