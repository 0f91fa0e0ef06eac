//! The page of a report.

use serde_json::Value;

use super::Sources;
use super::svg::escape;
use crate::config::schema::grouped;
use crate::trainer::plan::{MemoryKind, Plan};

const STYLE: &str = "body{font:15px/1.5 Helvetica,Arial,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;margin:.6em 0}\
td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}th{font-weight:600}\
td:first-child,th:first-child{text-align:left}img{max-width:100%}\
.kind{font-size:.75em;padding:.1em .5em;border-radius:.6em;background:#eee;margin-left:.4em}\
.planned{background:#e3edfb}.synthesised{background:#e4f2e0}.simulated{background:#fbe9dc}.published{background:#eee}";

/// The paper's own measurements of one training sample of its 334K model, ms (published).
const PUBLISHED: [(&str, f64); 2] = [
    ("NVIDIA RTX 4090, the paper", 17.13),
    ("AMD Ryzen 9900X, the paper", 139.04),
];

fn kind(name: &str) -> String {
    format!("<span class=\"kind {name}\">{name}</span>")
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String], tag: &str| {
        let cells: String = cells
            .iter()
            .map(|c| format!("<{tag}>{c}</{tag}>"))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(|r| line(r, "td")).collect();
    format!("<table>\n{}{body}</table>\n", line(head, "th"))
}

/// A count, with its half where it has one.
fn number(value: f64) -> String {
    let whole = grouped(value.trunc().max(0.0) as u64);
    match (value.fract() * 10.0).round() as u64 {
        0 => whole,
        tenth => format!("{whole}.{tenth}"),
    }
}

fn get(value: Option<&Value>, path: &[&str]) -> Option<f64> {
    let mut at = value?;
    for key in path {
        at = at.get(key)?;
    }
    at.as_f64()
}

fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_string(), number)
}

/// The whole page; pictures are files beside it.
pub fn page(s: &Sources<'_>) -> String {
    let plan = s.plan;
    let title = format!("{} on {}", plan.model.name, plan.target.name);
    let mut body = format!(
        "<h1>{}</h1>\n<p>On-chip trainer, {} parameters, array of {b} x {b} multiply-accumulate cells, {} Adam lanes, \
         {} activation groups. RTL: sha256 {}.</p>\n",
        escape(&title),
        grouped(plan.model.parameters() as u64),
        plan.shape.adam_lanes,
        plan.shape.group_depth.len(),
        escape(s.rtl_sha256),
        b = plan.shape.b,
    );
    body += &format!(
        "<p>Kinds of figures: {} by the planner, derived from the sizes and the unit costs; {} counted in Verilator; \
         {} Yosys on the same Verilog; {} by others, not measured here.</p>\n",
        kind("planned"),
        kind("simulated"),
        kind("synthesised"),
        kind("published")
    );
    body += &time(s);
    body += &resources(s);
    body += &modules(s);
    body += "<h2>One sample</h2>\n<p><img src=\"gantt.svg\" alt=\"Gantt picture of array, vector unit and Adam unit\"></p>\n";
    body += &phases(s);
    body += "<h2>Memory</h2>\n<p><img src=\"memory.svg\" alt=\"map of the memory blocks\"></p>\n";
    body += &memories(plan);
    body += "<p><img src=\"activations.svg\" alt=\"activation buffers over time\"></p>\n";
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{}</title>\n<style>{STYLE}</style></head>\n<body>\n{body}</body>\n</html>\n",
        escape(&title)
    )
}

fn time(s: &Sources<'_>) -> String {
    let plan = s.plan;
    let clock = plan.target.clock_mhz;
    let ms = |cycles: f64| format!("{:.3}", cycles / (clock * 1000.0));
    let planned = plan.cycles_per_sample() as f64;
    let mut rows = vec![vec![
        format!("this design at {clock} MHz {}", kind("planned")),
        number(planned),
        ms(planned),
    ]];
    if let Some(cycles) = get(s.sim, &["cycles_per_step"]) {
        rows.push(vec![
            format!("this design at {clock} MHz {}", kind("simulated")),
            number(cycles.round()),
            ms(cycles),
        ]);
    }
    if plan.model.name.starts_with("shakespeare-334k") {
        for (name, ms) in PUBLISHED {
            rows.push(vec![
                format!("{name} {}", kind("published")),
                "-".into(),
                format!("{ms}"),
            ]);
        }
    }
    let mut text = "<h2>Time per sample</h2>\n".to_string();
    text += &table(&["".into(), "cycles".into(), "ms".into()], &rows);
    if let Some(levels) = get(s.synth, &["levels"]) {
        text += &format!(
            "<p>The clock is the plan's. Longest path: {} logic levels {}; no place and route was run.</p>\n",
            number(levels),
            kind("synthesised")
        );
    }
    if let Some(sim) = s.sim {
        let verdict = sim.get("verdict").and_then(Value::as_str).unwrap_or("-");
        text += &format!(
            "<p>Simulated training: {} samples, {} words of weights, moments and results compared with the reference, \
             {} differ: <b>{}</b>.</p>\n",
            cell(get(s.sim, &["steps"])),
            cell(get(s.sim, &["words_compared"])),
            cell(get(s.sim, &["mismatches"])),
            escape(verdict)
        );
    }
    text
}

fn resources(s: &Sources<'_>) -> String {
    let (used, available) = (&s.plan.used, &s.plan.target.available);
    let rows: Vec<Vec<String>> = [
        ("BRAM36", "bram36", used.bram36, available.bram36),
        ("URAM", "uram", used.uram, available.uram),
        ("DSP", "dsp", used.dsp, available.dsp),
        ("LUT", "lut", used.lut, available.lut),
        ("FF", "ff", used.ff, available.ff),
    ]
    .into_iter()
    .map(|(name, key, planned, available)| {
        let synthesised = get(s.synth, &[key, "synthesised"]);
        let most = synthesised.unwrap_or(planned);
        let share = if available > 0.0 {
            format!("{:.1} %", 100.0 * most / available)
        } else {
            "-".into()
        };
        vec![
            name.to_string(),
            number(planned.round()),
            cell(synthesised),
            number(available),
            share,
        ]
    })
    .collect();
    let head = [
        "resource".to_string(),
        format!("planned {}", kind("planned")),
        format!("Yosys {}", kind("synthesised")),
        format!("available {}", kind("published")),
        "share".into(),
    ];
    let formula = s.synth.and_then(|v| v.get("lut_formula")?.as_str());
    let note = formula.map_or(String::new(), |f| format!("<p>{}.</p>\n", escape(f)));
    format!("<h2>Resources</h2>\n{}{note}", table(&head, &rows))
}

fn modules(s: &Sources<'_>) -> String {
    let list = s.synth.and_then(|v| v.get("modules")?.as_array());
    let rows: Vec<Vec<String>> = match list {
        Some(list) => list
            .iter()
            .map(|m| {
                let name = m.get("module").and_then(Value::as_str).unwrap_or("-");
                let mut row = vec![escape(name)];
                for key in ["lut", "ff", "dsp", "bram36"] {
                    for side in ["planned", "synthesised"] {
                        row.push(cell(
                            get(Some(m), &[side, key]).map(|x| (2.0 * x).round() / 2.0),
                        ));
                    }
                }
                row
            })
            .collect(),
        None => s
            .plan
            .modules
            .iter()
            .map(|m| {
                let r = &m.resources;
                let mut row = vec![m.module.to_string()];
                for value in [r.lut, r.ff, r.dsp, r.bram36] {
                    row.push(number(value.round()));
                    row.push("-".into());
                }
                row
            })
            .collect(),
    };
    let mut head = vec!["module".to_string()];
    for name in ["LUT", "FF", "DSP", "BRAM36"] {
        head.push(format!("{name} {}", kind("planned")));
        head.push(kind("synthesised"));
    }
    format!("<h2>Modules</h2>\n{}", table(&head, &rows))
}

fn phases(s: &Sources<'_>) -> String {
    let engine = |name: &str| match name {
        "Mat" => "array",
        "Vec" => "vector unit",
        _ => "Adam unit",
    };
    let operators = s.sim.and_then(|v| v.get("operators")?.as_array());
    let phases = s.sim.and_then(|v| v.get("phases")?.as_array());
    let text = |v: &Value, key: &str| {
        v.get(key)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_string()
    };
    let mut out = String::new();
    if let Some(phases) = phases.filter(|p| !p.is_empty()) {
        let rows: Vec<Vec<String>> = phases
            .iter()
            .map(|p| {
                vec![
                    format!("{}, {}", engine(&text(p, "engine")), text(p, "phase")),
                    cell(get(Some(p), &["planned"])),
                    cell(get(Some(p), &["simulated"])),
                ]
            })
            .collect();
        let head = [
            "engine, phase".to_string(),
            format!("cycles {}", kind("planned")),
            format!("cycles {}", kind("simulated")),
        ];
        out += &format!("<h2>Cycles by phase</h2>\n{}", table(&head, &rows));
    }
    let rows: Vec<Vec<String>> = match operators.filter(|o| !o.is_empty()) {
        Some(list) => list
            .iter()
            .map(|o| {
                let mut row = vec![format!(
                    "{}, {}",
                    engine(&text(o, "engine")),
                    text(o, "operator")
                )];
                for key in [
                    "planned_busy",
                    "simulated_busy",
                    "planned_waiting",
                    "simulated_waiting",
                ] {
                    row.push(cell(get(Some(o), &[key])));
                }
                row
            })
            .collect(),
        None => s
            .plan
            .breakdown()
            .iter()
            .map(|o| {
                let name = format!("{:?}", o.engine);
                vec![
                    format!("{}, {}", engine(&name), o.operator),
                    grouped(o.busy),
                    "-".into(),
                    grouped(o.waiting),
                    "-".into(),
                ]
            })
            .collect(),
    };
    let head = [
        "engine, operator".to_string(),
        format!("busy {}", kind("planned")),
        kind("simulated"),
        format!("waiting before {}", kind("planned")),
        kind("simulated"),
    ];
    out + &format!("<h2>Cycles by operator</h2>\n{}", table(&head, &rows))
}

fn memories(plan: &Plan) -> String {
    let rows: Vec<Vec<String>> = plan
        .memories
        .iter()
        .map(|m| {
            let (kind, size) = match m.kind {
                MemoryKind::Block => ("block RAM", number(m.blocks)),
                MemoryKind::Ultra => ("UltraRAM", number(m.blocks)),
                MemoryKind::Distributed => ("look-up tables", format!("{} LUT", m.luts)),
            };
            vec![
                escape(&m.name),
                grouped(m.words as u64),
                m.width.to_string(),
                grouped(m.depth as u64),
                m.banks.to_string(),
                kind.to_string(),
                size,
            ]
        })
        .collect();
    let head = ["memory", "words", "width", "depth", "banks", "kind"].map(String::from);
    let mut head = head.to_vec();
    head.push(format!("blocks {}", kind("planned")));
    table(&head, &rows)
}
