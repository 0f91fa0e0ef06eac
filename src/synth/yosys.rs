//! Yosys as a Python package (PyPI `pyosys`), one process per unit, results cached by content.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::YOSYS_VERSION;
use super::hierarchy::{Hierarchy, Unit, black_box, memory_files};
use super::netlist::Netlist;

/// Folder below the project into which `scripts/install-tools --synth` puts the package.
pub const PRIVATE_FOLDER: &str = "target/tools/pyosys";

/// Why a unit has no netlist.
#[derive(Debug, thiserror::Error)]
pub enum YosysError {
    #[error("python3 with the package pyosys {YOSYS_VERSION} was not found")]
    Missing,
    #[error("Yosys {found} was found; the figures of this project are those of {YOSYS_VERSION}")]
    Version { found: String },
    #[error("cannot use {path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("Yosys refused module {module}:\n{tail}")]
    Failed { module: String, tail: String },
    #[error("the netlist of module {module} cannot be read: {problem}")]
    Netlist { module: String, problem: String },
}

/// Runs the commands of a script and says what failed.
const DRIVER: &str = "\
import sys
from pyosys import libyosys as ys
design = ys.Design()
ys.run_pass('script ' + sys.argv[1], design)
";

/// Version of the installed package.
const VERSION: &str = "from importlib.metadata import version; print(version('pyosys'))";

/// The installed Yosys.
#[derive(Clone, Debug)]
pub struct Yosys {
    python: PathBuf,
    /// `PYTHONPATH`, if the package is not in the interpreter's own folders.
    folder: Option<PathBuf>,
}

/// What is the same for all units of a design.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `-family` of `synth_xilinx`.
    pub family: &'a str,
    /// Whether the part has UltraRAM.
    pub uram: bool,
}

impl Yosys {
    /// Finds the package, first in the interpreter's own folders, then in [`PRIVATE_FOLDER`] of the working folder.
    pub fn find() -> Result<Self, YosysError> {
        let python = which::which("python3").map_err(|_| YosysError::Missing)?;
        let mut wrong = None;
        for folder in [None, Some(std::path::absolute(PRIVATE_FOLDER).ok())] {
            let yosys = Yosys {
                python: python.clone(),
                folder: folder.flatten(),
            };
            let Ok(out) = yosys.command(&["-c", VERSION]).output() else {
                continue;
            };
            let found = String::from_utf8_lossy(&out.stdout).trim().to_string();
            if out.status.success() && found == YOSYS_VERSION {
                return Ok(yosys);
            }
            if !found.is_empty() {
                wrong = Some(found);
            }
        }
        Err(match wrong {
            Some(found) => YosysError::Version { found },
            None => YosysError::Missing,
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.args(arguments);
        if let Some(folder) = &self.folder {
            command.env("PYTHONPATH", folder);
        }
        command
    }

    /// The mapped netlist of a unit, from `cache` if the same text was mapped before.
    pub fn map(
        &self,
        hierarchy: &Hierarchy,
        unit: &Unit,
        memories: &[(String, String)],
        target: &Target<'_>,
        cache: &Path,
    ) -> Result<Netlist, YosysError> {
        let job = Job::new(hierarchy, unit, memories, target);
        let done = cache.join(format!("{}-{}.json", unit.top, job.key()));
        if let Ok(text) = std::fs::read_to_string(&done)
            && let Ok(netlist) = serde_json::from_str(&text)
        {
            return Ok(netlist);
        }
        std::fs::create_dir_all(cache).map_err(|e| io(cache, e))?;
        let work = tempfile::Builder::new()
            .prefix("synth-")
            .tempdir_in(cache)
            .map_err(|e| io(cache, e))?;
        let netlist = self.run(&job, unit, work.path())?;
        let text = serde_json::to_string(&netlist).map_err(|e| YosysError::Netlist {
            module: unit.top.clone(),
            problem: e.to_string(),
        })?;
        let staged = work.path().join("done.json");
        std::fs::write(&staged, text).map_err(|e| io(&staged, e))?;
        std::fs::rename(&staged, &done).map_err(|e| io(&done, e))?;
        Ok(netlist)
    }

    fn run(&self, job: &Job, unit: &Unit, folder: &Path) -> Result<Netlist, YosysError> {
        for (name, text) in &job.files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| io(&path, e))?;
        }
        let script = folder.join("unit.ys");
        std::fs::write(&script, &job.script).map_err(|e| io(&script, e))?;
        let out = self
            .command(&["-c", DRIVER, "unit.ys"])
            .current_dir(folder)
            .output()
            .map_err(|e| io(&self.python, e))?;
        let result = folder.join("netlist.json");
        if !out.status.success() || !result.is_file() {
            let text = [out.stdout, out.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            return Err(YosysError::Failed {
                module: unit.top.clone(),
                tail: lines[lines.len().saturating_sub(8)..].join("\n"),
            });
        }
        let text = std::fs::read_to_string(&result).map_err(|e| io(&result, e))?;
        Netlist::from_yosys(&text, &unit.top).map_err(|problem| YosysError::Netlist {
            module: unit.top.clone(),
            problem,
        })
    }
}

/// Attribute of a ROM that is made of look-up tables.
const DISTRIBUTED_ROM: &str = "rom_style = \"distributed\"";

/// Files and commands of one run.
struct Job {
    files: Vec<(String, String)>,
    script: String,
}

impl Job {
    fn new(
        hierarchy: &Hierarchy,
        unit: &Unit,
        memories: &[(String, String)],
        target: &Target<'_>,
    ) -> Self {
        let mut files = vec![];
        let mut script = String::new();
        for name in &unit.boxes {
            files.push((
                format!("{name}.v"),
                black_box(&hierarchy.modules[name].text),
            ));
            script += &format!("read_verilog -lib -DSYNTHESIS {name}.v\n");
        }
        for name in &unit.modules {
            let text = &hierarchy.modules[name].text;
            for file in memory_files(text) {
                files.extend(memories.iter().find(|(name, _)| name == file).cloned());
            }
            files.push((format!("{name}.v"), text.clone()));
            script += &format!("read_verilog -DSYNTHESIS {name}.v\n");
        }
        // Yosys takes `distributed` for RAM primitives, which have a write port; Vivado's meaning is look-up tables.
        if unit
            .modules
            .iter()
            .any(|m| hierarchy.modules[m].text.contains(DISTRIBUTED_ROM))
        {
            script += "setattr -set rom_style \"logic\" a:rom_style=distributed\n";
        }
        let uram = if target.uram { " -uram" } else { "" };
        script += &format!(
            "synth_xilinx -family {}{uram} -flatten -noiopad -noclkbuf -top {top}\nselect {top}\n\
             write_json -selected netlist.json\n",
            target.family,
            top = unit.top
        );
        Job { files, script }
    }

    /// Hash of everything that decides the netlist.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(YOSYS_VERSION);
        hash.update(&self.script);
        for (name, text) in &self.files {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update(text);
        }
        hash.finalize()[..12]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

fn io(path: &Path, source: std::io::Error) -> YosysError {
    YosysError::Io {
        path: path.display().to_string(),
        source,
    }
}
