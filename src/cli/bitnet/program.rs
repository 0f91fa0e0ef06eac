//! `nfgen bitnet run`: a program in text form.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::{Exit, Output};
use super::arguments::ArrayArgs;
use super::{cannot_write, program_problem};
use crate::cgla::image::Image;
use crate::cgla::{self, Launch, Machine};
use crate::diag::{Diagnostic, Problems};
use crate::files::{MOST_TEXT, read_text, write_whole};

/// Steps of a program that is run; the model takes seconds for as many on one group.
const MOST_STEPS: u128 = 1 << 24;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The text form is described in docs/cgla.md. Examples:\n  \
                  nfgen bitnet run add.cgla --rtl --json\n  \
                  nfgen bitnet run add.cgla --image add    # memory and registers for the PYNQ driver"
)]
pub struct Args {
    /// Program file
    file: PathBuf,
    /// Run on the RTL in Verilator as well and compare
    #[arg(long)]
    rtl: bool,
    /// Write what a host puts into memory and registers to this folder
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    #[command(flatten)]
    array: ArrayArgs,
}

/// One file per program segment, and `image.json`: addresses count from the image's first byte.
fn write_image(folder: &Path, launch: &Launch, out: &Output) -> Result<(), Problems> {
    if let Some(group) = launch.groups.iter().flatten().find(|g| g.weight_beats > 0) {
        return Err(Diagnostic::new(
            "nf::bitnet::refused",
            format!(
                "a program with {} beats of weights at {} cannot become an image",
                group.weight_beats, group.weight_addr
            ),
            "an image holds programs with their operands as `load` packets",
        )
        .into());
    }
    let image = Image::new(launch, 0)?;
    let mut files = vec![];
    let mut segments = vec![];
    for (index, (address, bytes)) in image.segments.iter().enumerate() {
        let file = format!("program{index}.bin");
        segments.push(json!({ "address": address, "file": file }));
        files.push((file, bytes.clone()));
    }
    let description = json!({
        "bytes": image.end,
        "segments": segments,
        "registers": image.registers,
        "outputs": image.outputs,
    });
    let text = serde_json::to_string_pretty(&description).unwrap_or_default() + "\n";
    files.push(("image.json".into(), text.into_bytes()));
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(folder)
            .and_then(|()| write_whole(&path, |f| f.write_all(&bytes)))
            .map_err(|e| cannot_write(&path, &e))?;
    }
    out.note(format!("wrote the image to {}", folder.display()));
    Ok(())
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let text =
        read_text(&args.file, MOST_TEXT).map_err(|e| Diagnostic::cannot_read(&args.file, &e))?;
    let config = args.array.config()?;
    let named = |error| match error {
        cgla::Error::Program(text) => {
            program_problem(format!("{}: {text}", args.file.display())).into()
        }
        other => Problems::from(other),
    };
    let launch = Launch::parse(&text, &config).map_err(named)?;
    launch.check(&config).map_err(named)?;
    if launch.steps() > MOST_STEPS {
        return Err(named(cgla::Error::Program(format!(
            "outputs x tokens x steps come to {}; accepted: up to {MOST_STEPS}",
            launch.steps()
        ))));
    }
    let mut model: Box<dyn Machine> = args.array.machine(false)?;
    let expected = model.run(&launch).map_err(named)?;
    for (index, (part, stored)) in launch.groups.iter().zip(&expected.outputs).enumerate() {
        let announced = part.as_ref().map_or(0, |p| p.results as usize);
        if announced != stored.len() {
            return Err(named(cgla::Error::Program(format!(
                "group {index}: results={announced}, but the program stores {} words",
                stored.len()
            ))));
        }
    }
    if let Some(folder) = &args.image {
        write_image(folder, &launch, out)?;
    }
    let simulated = if args.rtl {
        Some(args.array.machine(true)?.run(&launch)?)
    } else {
        None
    };
    let same = simulated.as_ref().map(|s| s.outputs == expected.outputs);
    let signed: Vec<Vec<i32>> = expected
        .outputs
        .iter()
        .map(|g| g.iter().map(|&w| w as i32).collect())
        .collect();
    out.object(&json!({
        "outputs": signed,
        "model_cycles": expected.phases,
        "rtl_cycles": simulated.as_ref().map(|s| s.phases),
        "rtl_equals_model": same,
    }));
    for (group, words) in signed.iter().enumerate().filter(|(_, w)| !w.is_empty()) {
        out.say(format!("group {group}: {words:?}"));
    }
    if let Some(result) = &simulated {
        out.say(format!(
            "RTL: {} cycles, results {}",
            result.phases.total,
            if same == Some(true) {
                "equal"
            } else {
                "DIFFERENT"
            }
        ));
    }
    Ok(if same == Some(false) {
        Exit::Difference
    } else {
        Exit::Done
    })
}
