//! What the comparison is worth: mutants of the emitted trainer, one operator, constant or
//! connection changed in each, and how many of them the simulations notice: first that of the
//! whole machine against the reference, then that of the changed block against its netlist.

#[path = "support/machine.rs"]
mod machine;
#[path = "support/tools.rs"]
mod tools;

use nfgen::compile::trainer::netlist;
use nfgen::dsl::{Design, ModuleDef};
use nfgen::emit::Core;
use nfgen::reference::{State, Trainer};
use nfgen::sim::compare::{compare, to_words};
use nfgen::sim::cosim::{self, Stimulus};
use nfgen::sim::mutate::{self, ARGUMENT, Site};
use nfgen::sim::trainer::{self as sim, Session};
use nfgen::trainer::layout::state_to_beats;
use nfgen::trainer::plan::Plan;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Mutants of the long run, spread over all modules.
const SITES: usize = 260;
/// Modules of the largest block that is simulated alone.
const LARGEST_BLOCK: usize = 24;
/// Share of them that must be noticed.
const BAR: f64 = 0.95;

/// What gave a mutant away: a wrong word, or a transaction that failed.
type Noticed = Box<dyn std::error::Error>;

/// Drives everything a user can see and says what was wrong first.
fn wrong(plan: &Plan, core: &Core, model: &sim::Model, stalls: f64) -> Result<(), Noticed> {
    let config = &plan.model;
    let same = |what: &str, got: u32, want: u32| {
        (got == want)
            .then_some(())
            .ok_or_else(|| Noticed::from(format!("{what} {got:#x} for {want:#x}")))
    };
    let register = |name: &str| core.registers.find(name).expect("a register").offset;
    let mut options = machine::options(stalls, 7);
    options.limit = Some(4 * plan.cycles_per_sample() as u32);
    let mut session = Session::start(plan, model, &options)?;

    // Registers: every readable one at reset, strobes, refusals.
    let driver = session.driver();
    for r in core
        .registers
        .registers
        .iter()
        .filter(|r| r.name != "STATUS")
    {
        let value = driver.read_register(r.offset)?;
        same(r.name, value, r.reset)?;
    }
    let scratch = register("SCRATCH");
    for (value, strobe, want) in [
        (0x1122_3344, 0xF, 0x1122_3344),
        (0xAABB_CCDD, 0b0101, 0x11BB_33DD),
        (0x5566_7788, 0b1010, 0x55BB_77DD),
    ] {
        driver.write_register_raw(scratch, value, strobe)?;
        same("SCRATCH", driver.read_register(scratch)?, want)?;
    }
    let refused = driver.write_register_raw(register("ID"), 1, 0xF)?;
    same("response", refused, 2)?;
    let unmapped = driver.read_register_raw(0xFFC)?.1;
    same("response", unmapped, 2)?;

    // Training through warm-up and decay, every word after every sample.
    let state = State::init(config);
    let samples = machine::windows(config, 5);
    let mut reference = Trainer::new(config, state.clone(), 1).expect("a trainer");
    session.write_state(&to_words(config, &state))?;
    for (n, window) in samples[..4].iter().enumerate() {
        let packet = session.train(window)?;
        let expected = reference.step(window).expect("a step");
        same("loss", packet[0], expected.loss.to_bits())?;
        same("loss_q24", packet[1], expected.loss_q24 as u32)?;
        same("correct", packet[3], expected.correct as u32)?;
        same("step", packet[4], n as u32 + 1)?;
        let got = session.read_state()?;
        let comparison = compare(
            config,
            n as u32 + 1,
            &to_words(config, reference.state()),
            &got,
        );
        if let Some(first) = comparison.first {
            return Err(format!("{} {} differs", first.tensor, first.word).into());
        }
        let cycles = f64::from(packet[5]) / plan.cycles_per_sample() as f64;
        if (cycles - 1.0).abs() > 0.02 {
            return Err(format!("{cycles:.3} of the planned cycles").into());
        }
    }
    let driver = session.driver();
    for (name, want) in [
        ("STEP", 4),
        ("SEED", to_words(config, &state).seed),
        ("IRQ_STATUS", 1),
    ] {
        let got = driver.read_register(register(name))?;
        same(name, got, want)?;
    }
    // Forward only, with the logits of a position.
    let position = config.seq_len - 2;
    let driver = session.driver();
    driver.write_register(register("LOGIT_POSITION"), position as u32)?;
    let packet = session.evaluate(&samples[4])?;
    let logits = reference
        .logits(&samples[4][..config.seq_len])
        .expect("logits");
    for (got, want) in packet[7..].iter().zip(&logits[position * config.vocab..]) {
        same("logit", *got, want.to_bits())?;
    }
    same("logits", packet.len() as u32 - 7, config.vocab as u32)?;

    // Bad samples raise their flags and an interrupt and give no result.
    for bad in ["token", "length"] {
        let mut window = samples[0].clone();
        if bad == "token" {
            window[2] = config.vocab as u32;
        } else {
            window.pop();
        }
        let driver = session.driver();
        driver.write_register(register("IRQ_ENABLE"), 3)?;
        driver.write_register(register("IRQ_STATUS"), 3)?;
        driver.send_tokens(&window)?;
        driver.wait_interrupt(10_000)?;
        let status = driver.read_register(register("STATUS"))?;
        same("error flags", status >> 4 & 7, 2)?;
        if driver.receive_result(5_000).is_ok() {
            return Err("a result of a bad sample".into());
        }
        driver.write_register(register("CONTROL"), 16)?;
        let status = driver.read_register(register("STATUS"))?;
        same("error flags", status >> 4 & 7, 0)?;
    }
    // A state stream that ends early is refused, and the core goes on.
    let mut beats = state_to_beats(&plan.weights, &to_words(config, reference.state()));
    beats.truncate(beats.len() / 2);
    let driver = session.driver();
    driver.write_register(register("IRQ_STATUS"), 3)?;
    driver.write_register(register("CONTROL"), 8)?;
    driver.send_state(&beats)?;
    driver.wait_interrupt(10_000)?;
    let status = driver.read_register(register("STATUS"))?;
    same("error flags", status >> 4 & 7, 4)?;
    session.driver().counters()?;
    Ok(())
}

fn shown(site: &Site) -> String {
    let Site {
        file,
        line,
        kind,
        from,
        to,
        ..
    } = site;
    format!("{file}:{line} {kind:?}: `{to}` for `{from}`")
}

/// Words at the edges of FP32.
const EDGES: [u32; 12] = [
    0,
    0x8000_0000,
    1,
    0x007f_ffff,
    0x0080_0000,
    0x3f80_0000,
    0x3f7f_ffff,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x3380_0001,
];

/// Random inputs for a block; 32-bit ones are partly floats at the edges or near each other.
fn stimulus(def: &ModuleDef, seed: u64) -> Stimulus {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut s = Stimulus::random(def, 6000, seed);
    for cycle in 0..s.cycles() {
        let exponent = rng.random_range(1..255u32);
        for (k, port) in def.inputs.iter().enumerate() {
            if port.width == 1 && cycle % 2 == 0 {
                // Handshakes that mostly go on, then mostly wait.
                let often = if cycle / 64 % 2 == 0 { 0.9 } else { 0.1 };
                s.set(cycle, k, u128::from(rng.random_bool(often)));
            }
            if port.width != 32 || cycle % 4 == 0 {
                continue;
            }
            let word = match rng.random_range(0..3u32) {
                0 => EDGES[rng.random_range(0..EDGES.len())],
                1 => rng.random::<u32>() & 0x8000_ffff | exponent << 23,
                _ => {
                    let near = exponent + rng.random_range(0..3) - 1;
                    rng.random::<u32>() & 0x807f_ffff | near.clamp(1, 254) << 23
                }
            };
            s.set(cycle, k, u128::from(word));
        }
    }
    s
}

/// Simulates the block that holds each site, alone, against its netlist; returns the sites whose
/// change shows there. A block's own mutants share a model, as those of the whole machine do.
fn noticed_alone(design: &Design, rtl: &[(String, String)], sites: &[&Site]) -> Vec<Site> {
    let mut noticed = vec![];
    let files: std::collections::BTreeSet<&str> = sites.iter().map(|s| s.file.as_str()).collect();
    for file in files {
        let name = file.trim_end_matches(".v");
        let def = design.modules().find(|d| d.name == name).expect("a module");
        let block = Design::new(def.clone()).expect("a design");
        if block.modules().count() > LARGEST_BLOCK {
            // All but the whole machine: random inputs would say little about it.
            continue;
        }
        let own: Vec<(String, String)> = rtl
            .iter()
            .filter(|(f, _)| block.modules().any(|d| format!("{}.v", d.name) == *f))
            .cloned()
            .collect();
        let index = own.iter().position(|(f, _)| f == file).expect("its file");
        let here: Vec<Site> = sites
            .iter()
            .filter(|s| s.file == file)
            .map(|s| Site {
                file_index: index,
                ..(*s).clone()
            })
            .collect();
        let woven = mutate::weave(&own, &here);
        let model = cosim::Model::build_from(def, &woven.files).expect("a model of a block");
        let runs: Vec<(Stimulus, cosim::Trace)> = (1..=3)
            .map(|seed| {
                let s = stimulus(def, seed);
                let trace = cosim::interpret(def, &s);
                (s, trace)
            })
            .collect();
        let differs = |model: &cosim::Model| {
            runs.iter().any(|(s, want)| match model.run(s) {
                Ok(got) => got.data != want.data,
                Err(_) => true,
            })
        };
        if differs(&model) {
            eprintln!("{name} alone is not defined on random inputs");
            continue;
        }
        for (n, site) in woven.sites.into_iter().enumerate() {
            if differs(&model.with_argument(format!("{ARGUMENT}{}", n + 1))) {
                noticed.push(site);
            }
        }
    }
    noticed
}

#[test]
fn mutants_are_noticed() {
    if std::env::var_os("NFGEN_FULL").is_none() {
        eprintln!("skipped: the mutation run takes minutes (make test-full)");
        return;
    }
    if tools::tool("verilator").is_none() {
        return;
    }
    let model = machine::model(
        "tiny",
        &[
            "warmup_steps=2",
            "total_steps=6",
            "rounding=stochastic",
            "moment_format=bf16",
        ],
    );
    let (plan, core) = machine::machine(&model, 4, None);
    let rtl: Vec<(String, String)> = core
        .rtl
        .iter()
        .map(|f| (f.name.clone(), f.text.clone()))
        .collect();
    // Some choices lie in no expression (a case label), so ask for more.
    let chosen = mutate::choose(&mutate::sites(&rtl), SITES + SITES / 3, 2606);
    let woven = mutate::weave(&rtl, &chosen);
    assert!(woven.sites.len() >= 200, "{} sites", woven.sites.len());
    let built = sim::build(&core, Some(&woven.files), &machine::options(0.0, 1))
        .expect("a simulation model");
    wrong(&plan, &core, &built, 0.3).expect("without a mutant nothing is wrong");

    let mut left: Vec<&Site> = vec![];
    for (n, site) in woven.sites.iter().enumerate() {
        let mutant = built.with_argument(format!("{ARGUMENT}{}", n + 1));
        let verdict = [0.3, 0.8]
            .iter()
            .find_map(|&stalls| wrong(&plan, &core, &mutant, stalls).err());
        match verdict {
            Some(how) => eprintln!("mutant {:>3} noticed: {how}", n + 1),
            None => {
                eprintln!("mutant {:>3} passes in the machine: {}", n + 1, shown(site));
                left.push(site);
            }
        }
    }
    let in_machine = woven.sites.len() - left.len();
    let design = netlist(&plan).expect("a netlist");
    let alone = noticed_alone(&design, &rtl, &left);
    left.retain(|s| {
        !alone
            .iter()
            .any(|a| (&a.file, a.start) == (&s.file, s.start))
    });

    let all = woven.sites.len();
    let modules: std::collections::BTreeSet<&str> =
        woven.sites.iter().map(|s| s.file.as_str()).collect();
    eprintln!(
        "{all} mutants in {} modules: {in_machine} noticed by the machine's comparison, {} by the \
         block's, {} survive:",
        modules.len(),
        all - in_machine - left.len(),
        left.len()
    );
    for s in &left {
        let (_, text) = &rtl[s.file_index];
        let line = text.lines().nth(s.line - 1).unwrap_or("").trim();
        eprintln!("  {} | {line}", shown(s));
    }
    assert!(
        (all - left.len()) as f64 >= BAR * all as f64,
        "{} of {all} mutants survive",
        left.len()
    );
}
