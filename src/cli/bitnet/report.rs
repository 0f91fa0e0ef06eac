//! `nfgen bitnet report`: the experiments as one HTML page.

use std::fmt::Write as _;
use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::ArrayArgs;
use super::cannot_write;
use super::svg::{Plot, Scale, Series};
use crate::bitnet::backend::Phases;
use crate::bitnet::make::random_matrix;
use crate::bitnet::quant::{Quantiser, quantise};
use crate::bitnet::shapes::BITNET_2B_4T;
use crate::bitnet::ternary::StreamFormat;
use crate::cgla::ArrayConfig;
use crate::cgla::bench::{ModelCost, model_cost, projection_cycles};
use crate::cgla::experiments::{KernelPoint, StreamResult, baselines, kernel_points};
use crate::cgla::paper::{CYCLES_PER_WORD, FIXED_CYCLES, MEASURED_MHZ, PROJECTED_MHZ};
use crate::diag::Problems;
use crate::files::write_whole;

/// Published constants: modelled host power, array power, decode time and call of the 19 tokens.
const HOST_WATT: f64 = 0.6485;
const ARRAY_WATT: f64 = 2.07;
const ARRAY_WATT_28NM: f64 = 1.82;
const PUBLISHED_HOST_SECONDS: f64 = 7.51;
const PUBLISHED_ARRAY_SECONDS: f64 = 0.0163;
const PUBLISHED_TOKENS: f64 = 19.0;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen bitnet report -o report.html\n  \
                  nfgen bitnet report --rtl --json > report.json")]
pub struct Args {
    /// HTML file to write
    #[arg(short, long, default_value = "bitnet_report.html")]
    out: PathBuf,
    /// Measure kernel points and baselines on the RTL in Verilator instead of the cycle model
    #[arg(long)]
    rtl: bool,
    #[command(flatten)]
    array: ArrayArgs,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let config = args.array.config()?;
    let memory = args.array.memory()?;
    let mut machine = args.array.machine(args.rtl)?;
    let mut rng = rand_pcg::Pcg64::seed_from_u64(args.array.seed.into());
    out.note("kernel time against loaded words");
    let points = kernel_points(machine.as_mut(), || rng.random())?;
    out.note("single-stream baselines");
    let weights = random_matrix(2560, 2560, 0.33, &mut rng)?;
    // Sums of uniform values stand in for activations: near normal, a few large ones.
    let activations: Vec<f32> = (0..2560)
        .map(|_| (0..12).map(|_| rng.random::<f32>() - 0.5).sum())
        .collect();
    let acts = quantise(&activations, 2560, Quantiser::A)?;
    let streams = baselines(machine.as_mut(), &weights, &acts)?;
    let mut costs = vec![];
    for format in FORMATS {
        for ports in (1..=4).filter(|p| config.rows.is_multiple_of(2 * p)) {
            let build = ArrayConfig { ports, ..config };
            costs.push(PortCost {
                format,
                ports,
                bytes_per_cycle: f64::from(ports) * 16.0 * memory.efficiency,
                cost: model_cost(&build, &memory, &BITNET_2B_4T, format)?,
            });
        }
    }
    let own = model_cost(&config, &memory, &BITNET_2B_4T, StreamFormat::TwoBit)?;
    let mut phases = Phases::default();
    for projection in &own.projections {
        for _ in 0..BITNET_2B_4T.layers {
            phases += projection.cycles;
        }
    }
    let layer = projection_cycles(&config, &memory, 6912, 2560, StreamFormat::TwoBit)?;
    let energy = |cycles: u64| ARRAY_WATT_28NM * cycles as f64 / (PROJECTED_MHZ * 1e6);
    let published_energy = (HOST_WATT * PUBLISHED_HOST_SECONDS
        + ARRAY_WATT * PUBLISHED_ARRAY_SECONDS)
        / PUBLISHED_TOKENS;
    let source = if args.rtl {
        "simulated RTL (Verilator)"
    } else {
        "cycle model"
    };
    let page = Page {
        source,
        points: &points,
        streams: &streams,
        costs: &costs,
        layer_cycles: layer.total,
        published_energy,
        energy: energy(own.cycles_per_token),
        phases,
        cycles_per_token: own.cycles_per_token,
        memory: format!(
            "{} ports of 16 bytes, {:.0} % of the cycles, {} cycles latency",
            config.ports,
            100.0 * memory.efficiency,
            memory.latency
        ),
        rows: config.rows,
    };
    let html = page.html();
    write_whole(&args.out, |f| f.write_all(html.as_bytes()))
        .map_err(|e| cannot_write(&args.out, &e))?;
    out.object(&json!({
        "file": args.out,
        "source": source,
        "kernel_points": points,
        "baselines": streams,
        "layer_6912x2560_cycles": layer,
        "models": costs.iter().map(|c| json!({
            "format": c.format.name(), "ports": c.ports, "cost": c.cost,
        })).collect::<Vec<_>>(),
        "phases_per_token": phases,
        "published_joule_per_token": published_energy,
        "array_joule_per_token": page.energy,
    }));
    out.say(format!("wrote {}", args.out.display()));
    Ok(Exit::Done)
}

struct Page<'a> {
    source: &'a str,
    points: &'a [KernelPoint],
    streams: &'a [StreamResult],
    costs: &'a [PortCost],
    phases: Phases,
    cycles_per_token: u64,
    layer_cycles: u64,
    published_energy: f64,
    energy: f64,
    memory: String,
    rows: u32,
}

impl Page<'_> {
    fn html(&self) -> String {
        let mut body = String::new();
        body.push_str(&format!(
            "<h1>BitNet b1.58 2B 4T on the programmable linear array</h1>\n<p>{} rows; memory: {}. \
             Kernel points and baselines: {}. Whole-model figures: cycle model. Clocks are given, \
             not timing results.</p>\n",
            self.rows, self.memory, self.source
        ));
        body.push_str(&self.kernel());
        body.push_str(&self.projections());
        body.push_str(&self.baselines());
        body.push_str(&self.energy());
        body.push_str(&self.roofline());
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>BitNet on the \
             array</title><style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;\
             padding:0 1em}}table{{border-collapse:collapse}}td,th{{border:1px solid #bbb;\
             padding:.2em .6em;text-align:right}}td:first-child{{text-align:left}}</style></head>\
             <body>\n{body}</body></html>\n"
        )
    }

    fn kernel(&self) -> String {
        let rows = self.points.iter().map(|p| {
            vec![
                p.words.to_string(),
                format!("{:.1}", p.published_us),
                format!("{:.1}", p.us_at_145_mhz),
                format!("{:.2}", p.published_products_per_cycle),
                format!("{:.2}", p.products_per_cycle),
                p.cycles.load.to_string(),
                p.cycles.exec.to_string(),
                p.cycles.drain.to_string(),
            ]
        });
        let table = table(
            &[
                "words per operand",
                "published us",
                "here, us at 145 MHz",
                "published products/cycle",
                "here",
                "load cycles",
                "exec cycles",
                "drain cycles",
            ],
            rows,
        );
        let line = |name: &str, colour, time: &dyn Fn(&KernelPoint) -> f64| Series {
            name: name.into(),
            colour,
            dashed: false,
            points: self
                .points
                .iter()
                .map(|p| (f64::from(p.words), time(p)))
                .collect(),
        };
        let plot = Plot {
            x_label: "32-bit words per operand",
            y_label: "microseconds at 145 MHz",
            scale: Scale::Log,
            series: &[
                line("published", "#b33", &|p| p.published_us),
                line("here", "#36c", &|p| p.us_at_145_mhz),
            ],
        };
        format!(
            "<h2>Kernel time against loaded words, published mapping (rows 2-3, 5-7, last)</h2>\n\
             {table}\n{}\n",
            plot.svg()
        )
    }

    fn projections(&self) -> String {
        let law = |products: f64| {
            let words = products / 8.0;
            let calls = (words / 32_768.0).ceil();
            calls * FIXED_CYCLES + words * CYCLES_PER_WORD
        };
        let layer = law(2.0 * 6912.0 * 2560.0);
        let model = law(2.0 * BITNET_2B_4T.trits() as f64);
        let here = self.cycles_per_token as f64;
        let rows = [MEASURED_MHZ, 250.0, PROJECTED_MHZ].map(|mhz| {
            let ms = |cycles: f64| format!("{:.3}", cycles / mhz / 1000.0);
            vec![
                format!("{mhz}"),
                ms(layer),
                ms(self.layer_cycles as f64),
                ms(model),
                ms(here),
                format!("{:.2}", mhz * 1e6 / here),
            ]
        });
        format!(
            "<h2>Projected times</h2>\n<p>Published mapping: its fitted law, {FIXED_CYCLES} cycles \
             per call and {CYCLES_PER_WORD} per word. Here: wide schedule, 2-bit weights. The \
             memory is taken to scale with the clock.</p>\n{}\n",
            table(
                &[
                    "MHz",
                    "6912 x 2560, published law, ms",
                    "here, ms",
                    "210 projections, published law, ms",
                    "here, ms",
                    "tokens/s here, ternary layers",
                ],
                rows.into_iter()
            )
        )
    }

    fn baselines(&self) -> String {
        let rows = self.streams.iter().map(|s| {
            vec![
                s.name.clone(),
                format!("{:.4}", s.normalised_error),
                format!("{:.3}", 1e3 * s.host_seconds),
                s.cycles.total.to_string(),
                format!("{:.3}", s.cycles.total as f64 / MEASURED_MHZ / 1e3),
            ]
        });
        format!(
            "<h2>Exact two-stream path and single-stream baselines, 2560 x 2560, one token</h2>\n\
             <p>Synthetic weights and activations, int8 per token. Error: L2 of the difference over \
             L2 of the exact result. Host time: quantising and packing on the machine that made \
             this page. Published errors: max-abs 0.102, power of two 0.0979, affine 0.0821, MSE \
             0.0942; published times, host included: exact 0.595 s, max-abs 0.359, power of two \
             0.387, affine 0.432, MSE 1.97.</p>\n{}\n",
            table(
                &[
                    "stream",
                    "error",
                    "host ms",
                    "array cycles",
                    "array ms at 145 MHz"
                ],
                rows
            )
        )
    }

    fn energy(&self) -> String {
        let p = self.phases;
        let rows = [
            ("configuration", p.conf),
            ("loading operands", p.load),
            ("executing", p.exec),
            ("draining", p.drain),
            ("all, phases overlapping", p.total),
        ]
        .map(|(name, cycles)| {
            let seconds = cycles as f64 / (PROJECTED_MHZ * 1e6);
            vec![
                name.to_owned(),
                cycles.to_string(),
                format!("{:.3}", 1e3 * cycles as f64 / 250e6),
                format!("{:.3}", 1e3 * seconds),
                format!("{:.5}", ARRAY_WATT_28NM * seconds),
            ]
        });
        format!(
            "<h2>Energy per token</h2>\n<p>Published split: ({HOST_WATT} W x \
             {PUBLISHED_HOST_SECONDS} s + {ARRAY_WATT} W x {PUBLISHED_ARRAY_SECONDS} s) / \
             {PUBLISHED_TOKENS} tokens = {:.4} J. With the published {ARRAY_WATT_28NM} W and 840 \
             MHz, all 210 projections here would take {:.4} J per token on the array; the host's \
             share without projections is not measured. Both are the published power model, not \
             measurements. The split below is this array's own, for 210 projections of 2-bit \
             weights (cycle model); loading and executing run side by side, so the parts add up to \
             more than the whole.</p>\n{}\n",
            self.published_energy,
            self.energy,
            table(
                &[
                    "phase",
                    "cycles per token",
                    "ms at 250 MHz",
                    "ms at 840 MHz",
                    "J at 840 MHz"
                ],
                rows.into_iter()
            )
        )
    }

    fn roofline(&self) -> String {
        let rows = self.costs.iter().map(|c| {
            vec![
                format!("{}, {} ports", c.format.name(), c.ports),
                format!("{:.1}", c.cost.weight_bytes_per_token as f64 / 1e6),
                format!("{:.1}", c.bytes_per_cycle * 250e6 / 1e9),
                format!("{:.2}", 250e6 / c.cost.memory_cycles_per_token),
                format!("{:.2}", 250e6 / c.cost.cycles_per_token as f64),
                format!("{:.1}", 100.0 * c.cost.roofline_share),
            ]
        });
        let colours = ["#36c", "#2a2", "#b33"];
        let mut series = vec![];
        for (format, colour) in FORMATS.into_iter().zip(colours) {
            let line = |name: String, dashed, rate: &dyn Fn(&ModelCost) -> f64| Series {
                name,
                colour,
                dashed,
                points: self
                    .costs
                    .iter()
                    .filter(|c| c.format == format)
                    .map(|c| (f64::from(c.ports), rate(&c.cost)))
                    .collect(),
            };
            series.push(line(format!("{} here", format.name()), false, &|c| {
                250e6 / c.cycles_per_token as f64
            }));
            series.push(line(format!("{} memory", format.name()), true, &|c| {
                250e6 / c.memory_cycles_per_token
            }));
        }
        let plot = Plot {
            x_label: "16-byte read ports",
            y_label: "tokens per second, ternary layers",
            scale: Scale::Linear,
            series: &series,
        };
        format!(
            "<h2>Roofline at 250 MHz, ternary layers</h2>\n<p>Bytes that a token reads, what the \
             ports deliver, and the rate that follows; the rows are shared out over the ports. \
             Nibbles stand for weights stored as int4.</p>\n{}\n{}\n",
            table(
                &[
                    "weights",
                    "MB per token",
                    "GB/s of the ports",
                    "memory allows tokens/s",
                    "here",
                    "share %"
                ],
                rows
            ),
            plot.svg()
        )
    }
}

/// A whole model on a build.
struct PortCost {
    format: StreamFormat,
    ports: u32,
    bytes_per_cycle: f64,
    cost: ModelCost,
}

/// Weight formats of the roofline.
const FORMATS: [StreamFormat; 3] = [
    StreamFormat::TwoBit,
    StreamFormat::FiveTrits,
    StreamFormat::Nibbles,
];

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = String::from("<table><tr>");
    for cell in head {
        let _ = write!(out, "<th>{cell}</th>");
    }
    out.push_str("</tr>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>");
    }
    out + "</table>"
}
