//! `nfgen compare`: the paper, its author's board, peers and this project in one table.

use serde_json::json;

use super::plan::MachineArgs;
use super::{DeviceArgs, Exit, ModelArgs, Output};
use crate::diag::{Diagnostic, Problems};

/// Figures that no computation here yields: `subject,quantity,value,unit,kind,how`.
const FIGURES: &str = include_str!("../../data/figures.csv");

/// What a figure may rest on.
const KINDS: [&str; 5] = [
    "published",
    "measured",
    "simulated",
    "synthesised",
    "derived",
];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen compare\n  \
    nfgen compare --model shakespeare-334k-5b --device zcu104 --json\n\n\
    Kinds: published (by others), measured (a program of this project or a peer was run), simulated (RTL),\n\
    synthesised, derived (the planner's arithmetic, done now for --model and --device).")]
pub struct CompareArgs {
    /// Model of the planner's rows (tiny, small, shakespeare-334k, ...) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "shakespeare-334k-7b")]
    model: String,
    /// Set any key of the model; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

/// One figure with its origin.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
struct Figure {
    subject: String,
    quantity: String,
    value: String,
    unit: String,
    kind: String,
    how: String,
}

/// Reads `data/figures.csv`; a line that is not six fields of a known kind is an error.
fn parse(text: &str) -> Result<Vec<Figure>, Diagnostic> {
    let lines = text.lines().enumerate().skip(1);
    lines
        .map(|(number, line)| {
            let fields: Vec<&str> = line.splitn(6, ',').map(str::trim).collect();
            match fields[..] {
                [subject, quantity, value, unit, kind, how]
                    if KINDS.contains(&kind) && value.parse::<f64>().is_ok() =>
                {
                    Ok(Figure {
                        subject: subject.into(),
                        quantity: quantity.replace(';', ","),
                        value: value.into(),
                        unit: unit.into(),
                        kind: kind.into(),
                        how: how.into(),
                    })
                }
                _ => Err(Diagnostic::new(
                    "nf::reference::invalid",
                    format!("data/figures.csv line {}: `{line}`", number + 1),
                    format!(
                        "write subject,quantity,value,unit,kind,how with a kind of {}",
                        KINDS.join(", ")
                    ),
                )),
            }
        })
        .collect()
}

pub fn run(args: CompareArgs, out: &Output) -> Result<Exit, Problems> {
    let mut figures = parse(FIGURES)?;
    let model = ModelArgs {
        model: args.model,
        set: args.set,
    }
    .resolve()?;
    let device = args.device.resolve()?;
    let plan = args.machine.plan(&model, &device)?;
    let how = format!(
        "nfgen plan --model {} --device {}{}",
        model.name,
        device.name,
        if plan.fits() { "" } else { "; does not fit" }
    );
    let (used, available) = (&plan.used, &plan.target.available);
    let share = |used: f64, available: f64| format!("{:.1}", 100.0 * used / available.max(1.0));
    for (quantity, value, unit) in [
        (
            "parameters trained on the chip",
            model.parameters().to_string(),
            "",
        ),
        (
            "cycles per training sample",
            plan.cycles_per_sample().to_string(),
            "cycles",
        ),
        (
            "training sample on the chip",
            format!("{:.3}", plan.ms_per_sample()),
            "ms",
        ),
        ("clock", plan.target.clock_mhz.to_string(), "MHz"),
        ("LUT of the device", share(used.lut, available.lut), "%"),
        ("DSP of the device", share(used.dsp, available.dsp), "%"),
        (
            "BRAM36 of the device",
            share(used.bram36, available.bram36),
            "%",
        ),
    ] {
        figures.push(Figure {
            subject: "this project".into(),
            quantity: quantity.into(),
            value,
            unit: unit.into(),
            kind: "derived".into(),
            how: how.clone(),
        });
    }
    out.object(&json!({ "figures": figures }));
    out.say(table(&figures));
    Ok(Exit::Done)
}

fn table(figures: &[Figure]) -> String {
    let width = |of: fn(&Figure) -> &str| figures.iter().map(|f| of(f).chars().count()).max();
    let subject = width(|f| &f.subject).unwrap_or(0);
    let quantity = width(|f| &f.quantity).unwrap_or(0);
    let lines: Vec<String> = figures
        .iter()
        .map(|f| {
            format!(
                "{:<subject$}  {:<quantity$}  {:>9} {:<8} {:<12} {}",
                f.subject, f.quantity, f.value, f.unit, f.kind, f.how
            )
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_figure_says_how_it_was_obtained() {
        let figures = parse(FIGURES).unwrap();
        assert!(figures.iter().all(|f| !f.how.is_empty()));
        for subject in ["paper", "author's board", "peer", "this project"] {
            assert!(
                figures.iter().any(|f| f.subject.starts_with(subject)),
                "{subject}"
            );
        }
    }

    #[test]
    fn a_figure_without_kind_is_an_error() {
        let wrong = "head\npaper,loss,1.5,nats,guessed,somehow\n";
        assert!(parse(wrong).unwrap_err().to_string().contains("line 2"));
        assert!(parse("head\npaper,loss,many,nats,measured,x\n").is_err());
    }
}
