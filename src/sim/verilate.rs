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
    #[error("`{path} --version` does not answer: {problem}")]
    Broken { path: String, problem: String },
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

/// File of a kept model that lists the hash of every other one.
const SUMS: &str = "sha256sums";

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
        let broken = |problem: String| BuildError::Broken {
            path: path.display().to_string(),
            problem,
        };
        let first = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().map(str::trim).find(|line| !line.is_empty());
            line.unwrap_or("no output").to_string()
        };
        if !out.status.success() {
            let text = first(&[out.stderr, out.stdout].concat());
            return Err(broken(format!("{}, {text}", out.status)));
        }
        let version = first(&out.stdout);
        let number = version.split_whitespace().nth(1).unwrap_or("");
        let mut parts = number.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
            return Err(broken(format!("no version in \"{version}\"")));
        };
        if (major, minor) < OLDEST_VERILATOR {
            let found = number.to_string();
            return Err(BuildError::TooOld { found });
        }
        Ok(Verilator { path, version })
    }

    /// Builds `job` below `cache` (or finds it there) and returns the path of the model.
    ///
    /// The folder's name is the hash of everything that goes in, and it appears by a rename
    /// once complete, so an interrupted build leaves nothing that looks finished. A model that
    /// no longer has the hash it was kept with is built again.
    pub fn build(&self, job: &Job<'_>, cache: &Path) -> Result<PathBuf, BuildError> {
        let key = self.key(job);
        // Models run in their own folder, where a relative path would lead elsewhere.
        let cache = &std::path::absolute(cache).map_err(|e| io(cache, e))?;
        let done = cache.join(format!("{}-{key}", job.top));
        let model = done.join(format!("V{}", job.top));
        if intact(&done) {
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
        let kept = job.memory.iter().map(|(n, _)| n.as_str()).chain([&*name]);
        let sums: Result<String, _> = kept
            .map(|name| sum(&keep.join(name)).map(|hash| format!("{hash}  {name}\n")))
            .collect();
        sums.and_then(|text| std::fs::write(keep.join(SUMS), text))
            .map_err(|e| io(&keep, e))?;
        if done.exists() && !intact(&done) {
            std::fs::remove_dir_all(&done).map_err(|e| io(&done, e))?;
        }
        match std::fs::rename(&keep, &done) {
            Ok(()) => Ok(model),
            // Another process finished the same build first.
            Err(_) if intact(&done) => Ok(model),
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

/// Whether a kept model is complete and as it was built.
fn intact(folder: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(folder.join(SUMS)) else {
        return false;
    };
    !text.is_empty()
        && text.lines().all(|line| match line.split_once("  ") {
            Some((hash, name)) => sum(&folder.join(name)).is_ok_and(|found| found == hash),
            None => false,
        })
}

/// SHA-256 of a file.
fn sum(path: &Path) -> std::io::Result<String> {
    let hash = Sha256::digest(std::fs::read(path)?);
    Ok(hash.iter().map(|b| format!("{b:02x}")).collect())
}

fn io(path: &Path, source: std::io::Error) -> BuildError {
    BuildError::Io {
        path: path.display().to_string(),
        source,
    }
}
