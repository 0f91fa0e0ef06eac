//! Arguments that several verbs share.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::{Exit, Output};
use crate::config::{self, Device, ModelConfig};
use crate::diag::{Diagnostic, Problems};
use crate::emit::{Difference, FileSet};
use crate::files::folder_of;

/// `--model NAME|FILE` and `--set key=value`.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// Built-in model (tiny, small, shakespeare-334k, shakespeare-334k-7b, shakespeare-334k-5b) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "small")]
    pub model: String,
    /// Set any key of the model; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ModelArgs {
    /// The checked model.
    pub fn resolve(&self) -> Result<ModelConfig, Problems> {
        config::load_model(&self.model, &self.set)
    }
}

/// `--device NAME|FILE`.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    /// Device of the catalogue (`nfgen devices`) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "zcu102")]
    pub device: String,
}

impl DeviceArgs {
    pub fn resolve(&self) -> Result<Device, Problems> {
        config::load_device(&self.device)
    }
}

/// `-o DIR`, `--check` and `--clock MHZ`: what every verb that emits a design takes.
#[derive(Clone, Debug, Args)]
pub struct EmitArgs {
    /// Output folder [default: generated/NAME]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Compare with what is on disk and write nothing; exit code 1 on a difference
    #[arg(long)]
    pub check: bool,
    /// Clock of the core in MHz [default: the device's]
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub clock: Option<u64>,
}

impl EmitArgs {
    /// The clock that was asked for, or the device's own.
    pub fn clock_mhz(&self, device: &Device) -> u64 {
        self.clock.unwrap_or(device.clock_mhz)
    }

    /// Writes a design, or compares it with `--check`, and reports which files differ.
    pub fn deliver(&self, name: &str, files: &FileSet, out: &Output) -> Result<Exit, Problems> {
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => PathBuf::from("generated").join(name),
        };
        let shown = folder.display();
        let rtl_sha256 = files.sha256_below("rtl");
        if self.check {
            let differences = files.compare(&folder)?;
            let drift: Vec<Value> = differences.iter().map(drift_object).collect();
            out.object(&json!({
                "folder": folder, "files": files.len(), "clean": drift.is_empty(), "drift": drift,
                "rtl_sha256": rtl_sha256,
            }));
            for difference in &differences {
                out.say(difference.to_string());
            }
            if differences.is_empty() {
                out.say(format!(
                    "{shown}: {} files, as they would be emitted",
                    files.len()
                ));
                return Ok(Exit::Done);
            }
            out.say(format!(
                "{shown}: {} of {} files differ",
                differences.len(),
                files.len()
            ));
            return Ok(Exit::Difference);
        }
        let written = files.write(&folder)?;
        out.object(&json!({
            "folder": folder, "files": files.len(), "written": written.written,
            "unchanged": written.unchanged, "removed": written.removed, "rtl_sha256": rtl_sha256,
        }));
        out.say(format!(
            "{shown}: {} files, {} written, {} unchanged, {} removed",
            files.len(),
            written.written.len(),
            written.unchanged,
            written.removed.len()
        ));
        Ok(Exit::Done)
    }
}

/// Folder of everything that is built once and kept: the one asked for, `NFGEN_CACHE`, or the user's own.
pub fn cache_folder(asked: Option<&PathBuf>) -> PathBuf {
    if let Some(folder) = asked {
        return folder.clone();
    }
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    match (from("NFGEN_CACHE"), from("XDG_CACHE_HOME"), from("HOME")) {
        (Some(folder), ..) => folder.into(),
        (_, Some(folder), _) => PathBuf::from(folder).join("nfgen"),
        (_, _, Some(home)) => PathBuf::from(home).join(".cache/nfgen"),
        _ => std::env::temp_dir().join("nfgen-cache"),
    }
}

/// Refuses a file that could not be written at the end of a long run. Leaves nothing behind.
pub fn check_writable(file: &Path) -> Result<(), Problems> {
    match tempfile::tempfile_in(folder_of(file)) {
        Ok(_) if file.is_dir() => {
            Err(Diagnostic::cannot_write(file, &ErrorKind::IsADirectory.into()).into())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Diagnostic::cannot_write(file, &error).into()),
    }
}

fn drift_object(difference: &Difference) -> Value {
    let (kind, line) = match difference {
        Difference::Missing { .. } => ("missing", None),
        Difference::Extra { .. } => ("extra", None),
        Difference::Changed { line, .. } => ("changed", Some(line)),
    };
    json!({ "path": difference.path(), "kind": kind, "line": line })
}
