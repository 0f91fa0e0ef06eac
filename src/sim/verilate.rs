//! Builds Verilator models, cached by content.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// Oldest release whose models this harness was run with.
pub const OLDEST_VERILATOR: (u32, u32) = (5, 6);

/// Why a model could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("verilator is not on the PATH")]
    Missing,
    #[error("verilator {found} is too old; {}.{:03} or newer is needed", OLDEST_VERILATOR.0, OLDEST_VERILATOR.1)]
    TooOld { found: String },
    #[error("cannot use {path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("verilator refused the design (log: {log}):\n{tail}")]
    Failed { log: String, tail: String },
}

/// Kind of C++ optimisation: a quick build for short runs, a fast model for long ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimise {
    Build,
    Speed,
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Top module.
    pub top: &'a str,
    /// (file name, text) of every Verilog source.
    pub verilog: &'a [(String, String)],
    /// (file name, text) of `$readmemh` files, laid beside the model.
    pub memory: &'a [(String, String)],
    /// (file name, text) of the C++ harness.
    pub harness: (&'a str, &'a str),
    /// Verilator configuration: signals that the harness reads, modules to be built as blocks of
    /// their own (`hier_block`). Empty for none.
    pub configuration: &'a str,
    pub optimise: Optimise,
    /// Build with FST tracing.
    pub trace: bool,
}

/// File name of a job's configuration.
const CONFIGURATION: &str = "nf_signals.vlt";

/// The installed Verilator.
#[derive(Clone, Debug)]
pub struct Verilator {
    path: PathBuf,
    /// First line of `verilator --version`.
    pub version: String,
}

impl Verilator {
    /// Finds Verilator on the PATH and checks its version.
    pub fn find() -> Result<Self, BuildError> {
        let path = which::which("verilator").map_err(|_| BuildError::Missing)?;
        let out = Command::new(&path)
            .arg("--version")
            .output()
            .map_err(|source| io(&path, source))?;
        let version = String::from_utf8_lossy(&out.stdout)
            .lines()
            .next()
            .unwrap_or("")
            .trim()
            .to_string();
        let number = version.split_whitespace().nth(1).unwrap_or("");
        let mut parts = number.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
        let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if found < OLDEST_VERILATOR {
            return Err(BuildError::TooOld { found: version });
        }
        Ok(Verilator { path, version })
    }

    /// Builds `job` below `cache` (or finds it there) and returns the path of the model.
    ///
    /// The folder's name is the hash of everything that goes in, and it appears by a rename
    /// once complete, so an interrupted build leaves nothing that looks finished.
    pub fn build(&self, job: &Job<'_>, cache: &Path) -> Result<PathBuf, BuildError> {
        let key = self.key(job);
        let done = cache.join(format!("{}-{key}", job.top));
        let model = done.join(format!("V{}", job.top));
        if model.is_file() {
            return Ok(model);
        }
        std::fs::create_dir_all(cache).map_err(|e| io(cache, e))?;
        let work = tempfile::Builder::new()
            .prefix("build-")
            .tempdir_in(cache)
            .map_err(|e| io(cache, e))?;
        let dir = work.path();
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::File::create(&path)
                .and_then(|mut f| f.write_all(text.as_bytes()))
                .map_err(|e| io(&path, e))
        };
        for (name, text) in job.verilog.iter().chain(job.memory) {
            write(name, text)?;
        }
        write(job.harness.0, job.harness.1)?;
        if !job.configuration.is_empty() {
            write(CONFIGURATION, job.configuration)?;
        }
        self.run(job, dir, cache)?;
        // Keep the model and its memory files; the objects are only ballast.
        let keep = dir.join("keep");
        std::fs::create_dir(&keep).map_err(|e| io(&keep, e))?;
        let name = format!("V{}", job.top);
        let built = dir.join("obj").join(&name);
        std::fs::rename(&built, keep.join(&name)).map_err(|e| io(&built, e))?;
        for (name, _) in job.memory {
            std::fs::rename(dir.join(name), keep.join(name)).map_err(|e| io(dir, e))?;
        }
        match std::fs::rename(&keep, &done) {
            Ok(()) => Ok(model),
            // Another process finished the same build first.
            Err(_) if model.is_file() => Ok(model),
            Err(e) => Err(io(&done, e)),
        }
    }

    fn key(&self, job: &Job<'_>) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(&self.version);
        part(&format!("{:?} {}", job.optimise, job.trace));
        for (name, text) in job.verilog.iter().chain(job.memory) {
            part(name);
            part(text);
        }
        part(job.harness.0);
        part(job.harness.1);
        part(job.configuration);
        hash.finalize()[..12]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    fn run(&self, job: &Job<'_>, dir: &Path, cache: &Path) -> Result<(), BuildError> {
        let mut command = Command::new(&self.path);
        command
            .current_dir(dir)
            .args(["--cc", "--exe", "--build", "-j", "2", "-Mdir", "obj"])
            .args(["--top-module", job.top, "-O3", "--x-assign", "fast"])
            .args(["--x-initial", "fast", "--noassert", "-Wno-fatal"])
            .args(["--output-split", "20000", "--output-split-cfuncs", "2000"]);
        let opt = match job.optimise {
            Optimise::Build => "-O1",
            Optimise::Speed => "-O2 -march=native",
        };
        command.args(["-MAKEFLAGS", &format!("OPT_FAST='{opt}' OPT_SLOW=-O0")]);
        if which::which("ccache").is_ok() {
            command.env("OBJCACHE", "ccache");
        }
        if job.trace {
            command.arg("--trace-fst");
        }
        if !job.configuration.is_empty() {
            command.arg(CONFIGURATION);
        }
        if job.configuration.contains("hier_block") {
            command.arg("--hierarchical");
        }
        for (name, _) in job.verilog {
            command.arg(name);
        }
        command.arg(job.harness.0);
        let out = command.output().map_err(|e| io(&self.path, e))?;
        if out.status.success() {
            return Ok(());
        }
        let log = cache.join(format!("{}.log", job.top));
        let text = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
        std::fs::write(&log, &text).map_err(|e| io(&log, e))?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let errors: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|l| l.contains("%Error") || l.contains("error:"))
            .take(12)
            .collect();
        let tail = if errors.is_empty() {
            lines[lines.len().saturating_sub(12)..].join("\n")
        } else {
            errors.join("\n")
        };
        Err(BuildError::Failed {
            log: log.display().to_string(),
            tail,
        })
    }
}

fn io(path: &Path, source: std::io::Error) -> BuildError {
    BuildError::Io {
        path: path.display().to_string(),
        source,
    }
}
