//! The report of a design: an HTML page with its tables, a Gantt picture of one sample and a map of all memory blocks.
//!
//! Every figure carries its kind: *planned* (by the planner, before anything is built), *simulated* (counted in the
//! RTL), *synthesised* (Yosys on the emitted Verilog) or *published* (by others).

mod activations;
mod gantt;
mod html;
mod memory;
pub mod svg;

use serde_json::Value;

use crate::trainer::cycles::Timeline;
use crate::trainer::plan::Plan;

/// What a report is made of. Everything but the plan is optional.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    pub plan: &'a Plan,
    /// Object of `nfgen synth --json`.
    pub synth: Option<&'a Value>,
    /// Object of `nfgen sim --json`.
    pub sim: Option<&'a Value>,
    /// Timeline of `nfgen sim --timeline`.
    pub timeline: Option<&'a Timeline>,
    /// Hash of the emitted Verilog.
    pub rtl_sha256: &'a str,
}

/// Colours by what a thing belongs to; the same in every picture.
fn colour(class: &str) -> &'static str {
    match class {
        "encode" => "#8c8c8c",
        "forward" => "#3b7dd8",
        "recompute" => "#8fb8ea",
        "backward" => "#e07b39",
        "gradient" => "#b8432f",
        "adam" => "#5f9e4f",
        _ => "#d9d9d9",
    }
}

/// Class of an operator on an engine (0 array, 1 vector unit, 2 Adam unit). Weight gradients are apart: they feed Adam.
fn class(engine: usize, operator: &str) -> &'static str {
    if engine == 2 {
        return "adam";
    }
    let (phase, name) = operator.split_once('.').unwrap_or((operator, ""));
    match phase {
        "forward" => "forward",
        "recompute" => "recompute",
        "backward"
            if engine == 0
                && (name.starts_with("dw")
                    || name.starts_with("dnorm")
                    || name == "dembedding") =>
        {
            "gradient"
        }
        "backward" => "backward",
        _ => "encode",
    }
}

/// The files of a report: (name, text).
pub fn files(sources: &Sources<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("index.html", html::page(sources)),
        ("gantt.svg", gantt::picture(sources.plan, sources.timeline)),
        ("memory.svg", memory::picture(sources.plan)),
        ("activations.svg", activations::picture(sources.plan)),
    ]
}

#[cfg(test)]
mod tests;
