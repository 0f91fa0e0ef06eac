//! `nfgen bitnet report`: the experiments as one HTML page.

use std::fmt::Write as _;
use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::ArrayArgs;
use super::cannot_write;
use crate::bitnet::make::random_matrix;
use crate::bitnet::quant::{Quantiser, quantise};
use crate::bitnet::shapes::BITNET_2B_4T;
use crate::bitnet::ternary::StreamFormat;
use crate::cgla::bench::{ModelCost, model_cost, projection_cycles};
use crate::cgla::experiments::{KernelPoint, StreamResult, baselines, kernel_points};
use crate::cgla::paper::{CYCLES_PER_WORD, FIXED_CYCLES, MEASURED_MHZ, PROJECTED_MHZ};
use crate::diag::Problems;

/// Published constants: modelled host power, array power, decode time and call of the 19 tokens.
const HOST_WATT: f64 = 0.6485;
const ARRAY_WATT: f64 = 2.07;
const ARRAY_WATT_28NM: f64 = 1.82;
const PUBLISHED_HOST_SECONDS: f64 = 7.51;
const PUBLISHED_ARRAY_SECONDS: f64 = 0.0163;
const PUBLISHED_TOKENS: f64 = 19.0;

#[derive(Debug, clap::Args)]
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
    for format in [
        StreamFormat::TwoBit,
        StreamFormat::FiveTrits,
        StreamFormat::Nibbles,
    ] {
        costs.push((format, model_cost(&config, &memory, &BITNET_2B_4T, format)?));
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
        energy: energy(costs[0].1.cycles_per_token),
        memory: format!(
            "{} ports of 16 bytes, {:.0} % of the cycles, {} cycles latency",
            config.ports,
            100.0 * memory.efficiency,
            memory.latency
        ),
        rows: config.rows,
    };
    let html = page.html();
    std::fs::write(&args.out, html).map_err(|e| cannot_write(&args.out, &e))?;
    out.object(&json!({
        "file": args.out,
        "source": source,
        "kernel_points": points,
        "baselines": streams,
        "layer_6912x2560_cycles": layer,
        "models": costs.iter().map(|(f, c)| json!({"format": f.name(), "cost": c})).collect::<Vec<_>>(),
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
    costs: &'a [(StreamFormat, ModelCost)],
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
        let published: Vec<(f64, f64)> = self
            .points
            .iter()
            .map(|p| (f64::from(p.words), p.published_us))
            .collect();
        let here: Vec<(f64, f64)> = self
            .points
            .iter()
            .map(|p| (f64::from(p.words), p.us_at_145_mhz))
            .collect();
        format!(
            "<h2>Kernel time against loaded words, published mapping (rows 2-3, 5-7, last)</h2>\n\
             {table}\n{}\n",
            plot(&[("published", "#b33", &published), ("here", "#36c", &here)])
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
        let here = self.costs[0].1.cycles_per_token as f64;
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
            ]
        });
        format!(
            "<h2>Exact two-stream path and single-stream baselines, 2560 x 2560, one token</h2>\n\
             <p>Synthetic weights and activations, int8 per token. Error: L2 of the difference over \
             L2 of the exact result. Host time: quantising and packing on the machine that made \
             this page. Published errors: max-abs 0.102, power of two 0.0979, affine 0.0821, MSE \
             0.0942.</p>\n{}\n",
            table(&["stream", "error", "host ms", "array cycles"], rows)
        )
    }

    fn energy(&self) -> String {
        format!(
            "<h2>Energy per token</h2>\n<p>Published split: ({HOST_WATT} W x \
             {PUBLISHED_HOST_SECONDS} s + {ARRAY_WATT} W x {PUBLISHED_ARRAY_SECONDS} s) / \
             {PUBLISHED_TOKENS} tokens = {:.4} J. With the published {ARRAY_WATT_28NM} W and 840 \
             MHz, all 210 projections here would take {:.4} J per token on the array; the host's \
             share without projections is not measured. Both are the published power model, not \
             measurements.</p>\n",
            self.published_energy, self.energy
        )
    }

    fn roofline(&self) -> String {
        let rows = self.costs.iter().map(|(format, cost)| {
            vec![
                format.name().to_owned(),
                format!("{:.1}", cost.weight_bytes_per_token as f64 / 1e6),
                format!("{:.2}", 250e6 / cost.memory_cycles_per_token),
                format!("{:.2}", 250e6 / cost.cycles_per_token as f64),
                format!("{:.1}", 100.0 * cost.roofline_share),
            ]
        });
        format!(
            "<h2>Roofline at 250 MHz, ternary layers</h2>\n{}\n",
            table(
                &[
                    "weights",
                    "MB per token",
                    "memory allows tokens/s",
                    "here",
                    "share %"
                ],
                rows
            )
        )
    }
}

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

/// Name, colour and points of a line.
type Series<'a> = (&'a str, &'a str, &'a [(f64, f64)]);

/// Lines on logarithmic axes, 560 x 320.
fn plot(series: &[Series<'_>]) -> String {
    let all = || series.iter().flat_map(|s| s.2.iter());
    let span = |pick: &dyn Fn(&(f64, f64)) -> f64| {
        let low = all().map(pick).fold(f64::MAX, f64::min).log10().floor();
        let high = all().map(pick).fold(f64::MIN, f64::max).log10().ceil();
        (low, high.max(low + 1.0))
    };
    let (x, y) = (span(&|p| p.0), span(&|p| p.1));
    let at = |p: &(f64, f64)| {
        (
            50.0 + 490.0 * (p.0.log10() - x.0) / (x.1 - x.0),
            280.0 - 260.0 * (p.1.log10() - y.0) / (y.1 - y.0),
        )
    };
    let mut out = String::from(
        "<svg width=\"560\" height=\"320\" font-size=\"12\"><rect x=\"50\" y=\"20\" width=\"490\" \
         height=\"260\" fill=\"none\" stroke=\"#999\"/>",
    );
    for power in x.0 as i32..=x.1 as i32 {
        let (px, _) = at(&(10f64.powi(power), 1.0));
        let _ = write!(
            out,
            "<text x=\"{px:.0}\" y=\"296\" text-anchor=\"middle\">1e{power}</text>"
        );
    }
    for power in y.0 as i32..=y.1 as i32 {
        let (_, py) = at(&(1.0, 10f64.powi(power)));
        let _ = write!(
            out,
            "<text x=\"46\" y=\"{py:.0}\" text-anchor=\"end\">1e{power}</text>"
        );
    }
    out.push_str("<text x=\"295\" y=\"314\" text-anchor=\"middle\">words per operand</text>");
    out.push_str("<text x=\"4\" y=\"14\">microseconds at 145 MHz</text>");
    for (index, (name, colour, points)) in series.iter().enumerate() {
        let path: Vec<String> = points
            .iter()
            .map(|p| {
                let (px, py) = at(p);
                format!("{px:.1},{py:.1}")
            })
            .collect();
        let _ = write!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"70\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            path.join(" "),
            40 + 16 * index
        );
    }
    out + "</svg>"
}
