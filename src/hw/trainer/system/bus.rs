//! The transformer bus: control states, commands, token input, schedule, result output.

use std::sync::Arc;

use super::layer::{Unit, Wiring};
use crate::dsl::{DslError, Module, ModuleDef, Sig};

/// Control states of the paper (section 2.4), in the code of STATUS.STATE.
pub const STATES: [&str; 6] = [
    "Idle",
    "Encode",
    "Forward",
    "Backward",
    "WeightRead",
    "WeightWrite",
];

/// The parts of the bus.
pub struct BusParts {
    /// `nf_attention_layer`.
    pub layer: Arc<ModuleDef>,
    /// `nf_token_input`.
    pub tokens: Arc<ModuleDef>,
    /// `nf_schedule_unit`.
    pub schedule: Arc<ModuleDef>,
    /// `nf_result_output`.
    pub result: Arc<ModuleDef>,
    /// Seed of stochastic rounding after reset.
    pub seed: u32,
    /// Values of open inputs that no register changes: Adam's constants, the loss scale.
    pub constants: Vec<(&'static str, u32)>,
}

/// Module `nf_transformer_bus`.
///
/// Commands are pulses (`start_train`, `start_eval`, `weight_read`, `weight_write`, `cancel`); a
/// command waits until the machine is idle, and a sample also until its tokens are there.
/// `sample_start` clears what belongs to a sample. `done` pulses when a command has ended.
pub fn transformer_bus(parts: &BusParts) -> Result<Arc<ModuleDef>, DslError> {
    let m = Module::new("nf_transformer_bus");
    m.doc("Control states Idle, Encode, Forward, Backward, WeightRead, WeightWrite; one sample at a time.");
    let mut w = Wiring::new(&m);
    for (name, value) in &parts.constants {
        w.constant(name, *value);
    }
    let layer = Unit::new(&m, "u_attention_layer", &parts.layer);
    let tokens = Unit::new(&m, "u_token_input", &parts.tokens);
    let schedule = Unit::new(&m, "u_schedule_unit", &parts.schedule);
    let result = Unit::new(&m, "u_result_output", &parts.result);

    m.section("Commands wait here until they can be taken");
    let cancel = w.input("cancel", 1);
    let state = m.fsm("state_q", &STATES);
    let result_busy = w.output(&result, "busy");
    let schedule_busy = w.output(&schedule, "busy");
    let available = w.output(&tokens, "available");
    let idle = (state.is("Idle") & !result_busy & !schedule_busy).named("idle");
    let pending = |name: &str, taken: Sig<'_>| {
        let r = m.reg(&format!("{name}_pending_q"), 1).with_reset(0);
        r.set_next((m.input(name, 1) | (r.q() & !taken)) & !cancel);
        r.q()
    };
    // One command is taken at a time, in this order of preference.
    let grant = m.reg("grant_q", 4).with_reset(0);
    let taken = |k: u32| grant.q().bit(k);
    let write_wanted = pending("weight_write", taken(0));
    let read_wanted = pending("weight_read", taken(1));
    let train_wanted = pending("start_train", taken(2));
    let eval_wanted = pending("start_eval", taken(3));
    let free = (idle & !grant.q().or_reduce()).named("free");
    let take_write = (free & write_wanted).named("take_write");
    let take_read = (free & read_wanted & !write_wanted).named("take_read");
    let no_state = !write_wanted & !read_wanted;
    let take_train = (free & no_state & train_wanted & available).named("take_train");
    let take_eval = (free & no_state & eval_wanted & !train_wanted & available).named("take_eval");
    grant.set_next(m.cat(&[take_eval, take_train, take_read, take_write]));
    let sample = (taken(2) | taken(3)).named("take_sample");
    let forward_only = m
        .reg_next("forward_only_q", taken(3))
        .with_enable(sample)
        .with_reset(0)
        .q();

    m.section("Control states");
    // sample_start reaches the engines one cycle after the tokens were taken.
    let sample_start = m.reg_next("sample_start_q", sample).with_reset(0).q();
    let running = w.output(&layer, "running");
    let running_was = m.reg_next("running_was_q", running).with_reset(0).q();
    let sample_done = (running_was & !running).named("sample_done");
    let mat_start = w.output(&layer, "mat_start");
    let phase = w.output(&layer, "mat_phase");
    let to_forward = mat_start & phase.or_reduce();
    let to_backward = mat_start & phase.bit(1);
    let state_busy = w.output(&layer, "state_busy");
    let state_started = m.pipe("state_started", taken(0) | taken(1), 4);
    let settle = m.reg("settle_q", 1).with_reset(0);
    settle.set_next((taken(0) | taken(1)) | (settle.q() & !state_started));
    let state_done = (!state_busy & !settle.q()).named("state_done");
    state.transitions(&[
        ("Idle", taken(0), "WeightWrite"),
        ("Idle", taken(1), "WeightRead"),
        ("Idle", sample, "Encode"),
        ("Encode", to_backward, "Backward"),
        ("Encode", to_forward, "Forward"),
        ("Encode", sample_done, "Idle"),
        ("Forward", to_backward, "Backward"),
        ("Forward", sample_done, "Idle"),
        ("Backward", sample_done, "Idle"),
        ("WeightRead", state_done, "Idle"),
        ("WeightWrite", state_done, "Idle"),
    ]);
    let in_stream = state.is_any(&["WeightRead", "WeightWrite"]);
    let command_done = (sample_done | (in_stream & state_done)).named("command_done");

    m.section("Clock cycles of the running or last command");
    let cycles = m.reg("cycles_q", 64).with_reset(0);
    let counting = !state.is("Idle");
    let begin = grant.q().or_reduce();
    cycles
        .set_next(m.mux(begin, m.lit(0, 64), cycles.q().add_const(1)))
        .with_enable(begin | counting);

    m.section(
        "Error flags: a number that is not finite, a wrong token packet, a wrong state packet",
    );
    let sticky = |name: &str, event: Sig<'_>| {
        let r = m.reg(name, 1).with_reset(0);
        r.set_next((r.q() | event) & !cancel);
        r.q()
    };
    let number_error = w.output(&layer, "error");
    let token_error = w.output(&tokens, "error_length") | w.output(&tokens, "error_token");
    let weight_error = w.output(&layer, "state_error_early") | w.output(&layer, "state_error_late");
    let flags = m.cat(&[
        sticky("error_weight_q", weight_error),
        sticky("error_token_q", token_error),
        sticky("error_number_q", number_error),
    ]);
    let any_error = number_error | token_error | weight_error;

    m.section("Seed: from reset or from a written state");
    let seed = m.reg("seed_q", 32).with_reset(u128::from(parts.seed));
    let load = w.output(&layer, "state_load");
    seed.set_next(w.output(&layer, "load_seed"))
        .with_enable(load);

    m.section("Wiring");
    w.connect(&layer, "sample_start", sample_start);
    w.connect(&layer, "forward_only", forward_only);
    w.connect(&layer, "adam_hold", schedule_busy);
    w.connect(&layer, "state_write", taken(0));
    w.connect(&layer, "state_read", taken(1));
    w.connect(&layer, "seed", seed.q());
    w.connect(&tokens, "take", sample);
    for port in ["tok_v_en", "tok_v_addr", "tok_h_addr", "target_tile"] {
        let value = w.output(&layer, port);
        w.connect(&tokens, port, value);
    }
    let lanes = |unit: &Unit<'_>, prefix: &str| {
        unit.def
            .outputs
            .iter()
            .filter(|p| p.name.starts_with(prefix))
            .map(|p| p.name.clone())
            .collect::<Vec<_>>()
    };
    for port in lanes(&tokens, "tok_lane_")
        .into_iter()
        .chain(["tok_h".to_string()])
        .chain(lanes(&tokens, "target_"))
    {
        let value = w.output(&tokens, &port);
        w.connect(&layer, &port, value);
    }
    for (port, register) in [
        ("lr_peak", "lr_peak"),
        ("lr_warmup_slope", "lr_rise"),
        ("lr_decay", "lr_slope"),
        ("lr_min", "lr_floor"),
        ("warmup_steps", "warmup"),
    ] {
        let value = w.input(register, 32);
        w.connect(&schedule, port, value);
    }
    w.connect(&schedule, "start", taken(2));
    w.connect(&schedule, "load", load);
    for name in ["step", "p1", "p2"] {
        let value = w.output(&layer, &format!("load_{name}"));
        w.connect(&schedule, &format!("load_{name}"), value);
    }
    for name in ["step", "p1", "p2", "lr", "alpha", "eps_t"] {
        let value = w.output(&schedule, name);
        if layer.def.input_index(name).is_some() {
            w.connect(&layer, name, value);
        }
    }
    w.connect(&result, "start", sample_done);
    w.connect(&result, "with_logits", forward_only);
    let (step, lr) = (w.output(&schedule, "step"), w.output(&schedule, "lr"));
    w.connect(&result, "step", step);
    w.connect(&result, "cycles", cycles.q());
    for port in ["loss_q24", "correct"] {
        let value = w.output(&layer, port);
        w.connect(&result, port, value);
        let kept = m.reg_next(&format!("{port}_kept_q"), value);
        m.output(port, kept.with_enable(sample_done).q());
    }
    let logit_address = w.output(&result, "logit_raddr");
    w.connect(&layer, "logit_raddr", logit_address);
    let logit = w.output(&layer, "logit_rdata");
    w.connect(&result, "logit_rdata", logit);
    w.output(&result, "loss_valid");

    m.port_group("Status");
    m.output("state", state.q());
    m.output("busy", !state.is("Idle") | result_busy | schedule_busy);
    m.output("error_flags", flags);
    m.output(
        "error_event",
        m.reg_next("error_event_q", any_error).with_reset(0).q(),
    );
    m.output("done", m.reg_next("done_q", command_done).with_reset(0).q());
    m.output("cycles", cycles.q());
    m.output("seed", seed.q());
    m.output("step", step);
    m.output("lr", lr);
    for unit in [&layer, &tokens, &schedule, &result] {
        w.export(unit);
    }
    m.finish()
}
