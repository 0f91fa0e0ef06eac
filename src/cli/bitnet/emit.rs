//! `nfgen bitnet emit`: the array as Verilog.

use std::path::PathBuf;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::super::{DeviceArgs, Exit, Output};
use super::arguments::ArrayArgs;
use super::cannot_write;
use crate::cgla::rtl;
use crate::diag::Problems;
use crate::sim::cgla::harness;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to write
    #[arg(short, long, default_value = "generated/cgla")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    array: ArrayArgs,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let config = args.array.config()?;
    let device = args.device.resolve()?;
    let mut files: Vec<(String, String)> = rtl::verilog(&config)?
        .into_iter()
        .map(|(name, text)| (format!("rtl/{name}"), text))
        .collect();
    files.push(("tb/cgla_harness.cpp".into(), harness(&config)));
    let listed: Vec<_> = files
        .iter()
        .map(|(name, text)| {
            let digest: String = Sha256::digest(text.as_bytes())
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            json!({ "file": name, "bytes": text.len(), "sha256": digest })
        })
        .collect();
    let manifest = json!({
        "top": "nf_cgla_top",
        "array": config,
        "device": device.name,
        "part": device.part,
        "files": listed,
    });
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
    files.push(("manifest.json".into(), text + "\n"));
    for (name, text) in &files {
        let path = args.out.join(name);
        let folder = path.parent().unwrap_or(&args.out);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| cannot_write(&path, &e))?;
    }
    out.object(&manifest);
    out.say(format!(
        "wrote {} files to {}",
        files.len(),
        args.out.display()
    ));
    Ok(Exit::Done)
}
