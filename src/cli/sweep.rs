//! `nfgen sweep`: many designs at once, as jobs that any machine can run.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::{Value, json};

use super::plan::MachineArgs;
use super::reference::problems;
use super::synth::synthesise_plan;
use super::{Exit, Output};
use crate::config::device::{load_device, parse_device, to_toml};
use crate::config::{fields, load_model, parse_model};
use crate::diag::{Diagnostic, Problems};
use crate::files::{MOST_TEXT, read_text};
use crate::reference::checkpoint::write_atomically;
use crate::sweep::{Job, csv, jobs, pareto_front, parse, picture, rows, slurm_script};

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  nfgen sweep --plan sweep.toml -o sweep\n  nfgen sweep --plan sweep.toml -o sweep --prepare   # then: sbatch sweep.sbatch\n  \
    nfgen sweep job sweep/jobs/p0001.json --results sweep/results\n  nfgen sweep collect sweep\n\n\
    A sweep file lists models, devices and, as wanted, array, adam_lanes, groups, clock_mhz, synth = true and a table\n\
    [set] of model keys with lists of values; every combination is a point. Points with a result are not run again."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Sweep file
    #[arg(long, value_name = "FILE", required = true)]
    plan: Option<PathBuf>,
    /// Folder of jobs, results, table and picture
    #[arg(short, long, value_name = "DIR", default_value = "sweep")]
    out: PathBuf,
    /// Jobs at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Write jobs and Slurm script, run nothing
    #[arg(long)]
    prepare: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run one job and write its result
    Job(JobArgs),
    /// Gather the results of a folder: points.csv and pareto.svg
    Collect {
        /// Folder of the sweep
        #[arg(value_name = "DIR", default_value = "sweep")]
        folder: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct JobArgs {
    /// Job file
    #[arg(value_name = "FILE")]
    job: PathBuf,
    /// Folder of results
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Folder of synthesised modules [default: $NFGEN_CACHE, else nfgen in the user's cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    match &args.command {
        Some(Command::Job(job)) => run_job(job, out),
        Some(Command::Collect { folder }) => collect(folder, out),
        None => sweep(&args, out),
    }
}

fn refused(message: String) -> Problems {
    Diagnostic::new(
        "nf::sweep::file",
        message,
        "`nfgen sweep --help` shows what a sweep file and its folder hold",
    )
    .into()
}

fn read(path: &Path) -> Result<String, Problems> {
    read_text(path, MOST_TEXT).map_err(|e| refused(format!("cannot read {}: {e}", path.display())))
}

fn folder(path: &Path) -> Result<(), Problems> {
    std::fs::create_dir_all(path)
        .map_err(|e| refused(format!("cannot create {}: {e}", path.display())))
}

fn sweep(args: &Args, out: &Output) -> Result<Exit, Problems> {
    let Some(plan) = &args.plan else {
        return Err(refused("no sweep file was given".into()));
    };
    let text = read(plan)?;
    let named = |e| refused(format!("{}: {e}", plan.display()));
    let mut list = jobs(&parse(&text).map_err(named)?).map_err(named)?;
    let (job_folder, result_folder) = (args.out.join("jobs"), args.out.join("results"));
    for path in [&job_folder, &result_folder, &args.out.join("logs")] {
        folder(path)?;
    }
    let mut open = vec![];
    for job in &mut list {
        // Mistakes in a name or a key show before anything runs, and a job needs no other file afterwards.
        job.model_toml = fields::to_toml(&load_model(&job.model, &job.set)?);
        job.device_toml = to_toml(&load_device(&job.device)?);
        let path = job_folder.join(format!("{}.json", job.point));
        let text = serde_json::to_string_pretty(job).unwrap_or_default();
        let result = result_folder.join(format!("{}.json", job.point));
        let same = std::fs::read_to_string(&path).is_ok_and(|old| old == text);
        if !same {
            write_atomically(&path, text.as_bytes()).map_err(problems)?;
        }
        if !(same && result.is_file()) {
            open.push(path);
        }
    }
    let name = args
        .out
        .file_name()
        .map_or("sweep".into(), |n| n.to_string_lossy());
    let script = slurm_script(&name, list.len());
    write_atomically(&args.out.join("sweep.sbatch"), script.as_bytes()).map_err(problems)?;
    out.note(format!(
        "{} points, {} with a result already",
        list.len(),
        list.len() - open.len()
    ));
    if args.prepare {
        out.object(&json!({"folder": args.out, "points": list.len(), "open": open.len()}));
        out.say(format!(
            "{}: jobs and sweep.sbatch written",
            args.out.display()
        ));
        return Ok(Exit::Done);
    }
    let failed = run_all(args, &open, &result_folder, out)?;
    if !failed.is_empty() {
        return Err(refused(format!(
            "{} of {} jobs ended without a result: {}; the others are kept, and the same command runs the rest",
            failed.len(),
            list.len(),
            failed.join(", ")
        )));
    }
    collect(&args.out, out)
}

/// Runs jobs as processes of their own, so that one that fails takes no other along. Returns the names that failed.
fn run_all(
    args: &Args,
    open: &[PathBuf],
    results: &Path,
    out: &Output,
) -> Result<Vec<String>, Problems> {
    let program =
        std::env::current_exe().map_err(|e| refused(format!("cannot find this program: {e}")))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.jobs.map_or(cores, usize::from).min(open.len());
    let bar = out.progress(open.len() as u64, "points");
    let queue = Mutex::new(open.iter());
    let failed = Mutex::new(vec![]);
    let logs = args.out.join("logs");
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(job) = queue.lock().ok().and_then(|mut q| q.next()) else {
                        return;
                    };
                    let name = job.file_stem().unwrap_or_default().to_string_lossy();
                    let ran = std::process::Command::new(&program)
                        .args(["sweep", "job"])
                        .arg(job)
                        .arg("--results")
                        .arg(results)
                        .output();
                    let good = match ran {
                        Ok(ran) => {
                            let log = [ran.stdout, ran.stderr].concat();
                            let kept = std::fs::write(logs.join(format!("{name}.txt")), log);
                            kept.is_ok() && ran.status.success()
                        }
                        Err(_) => false,
                    };
                    if !good && let Ok(mut failed) = failed.lock() {
                        failed.push(name.to_string());
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort();
    Ok(failed)
}

/// Computes one point. A model that has no machine, or does not fit, is a result like any other.
fn run_job(args: &JobArgs, out: &Output) -> Result<Exit, Problems> {
    let text = read(&args.job)?;
    let job: Job = serde_json::from_str(&text)
        .map_err(|e| refused(format!("{} is no job: {e}", args.job.display())))?;
    let model = parse_model("model", "the job's model", &job.model_toml, &[])?;
    let device = parse_device(&job.device, "the job's device", &job.device_toml)?;
    let machine = MachineArgs {
        clock: job.clock_mhz,
        array: job.array,
        adam_lanes: job.adam_lanes,
        groups: job.groups,
    };
    let mut result = json!({
        "point": job.point, "model": job.model, "device": job.device, "set": job.set.join("; "),
        "settings": settings(&job),
        "plan": Value::Null, "synth": Value::Null, "error": "",
    });
    match machine.plan(&model, &device) {
        Ok(plan) => {
            result["plan"] = plan.to_json();
            if job.synth && plan.fits() {
                let done = synthesise_plan(&plan, &device, args.cache.as_ref(), 1, out)?;
                result["synth"] = done.object;
            }
        }
        Err(refusal) => {
            let first = refusal.iter().next().map(|d| d.message.clone());
            result["error"] = json!(first.unwrap_or_default());
        }
    }
    folder(&args.results)?;
    let path = args.results.join(format!("{}.json", job.point));
    let text = serde_json::to_string_pretty(&result).unwrap_or_default();
    write_atomically(&path, text.as_bytes()).map_err(problems)?;
    out.object(&result);
    out.say(format!("{}: written", path.display()));
    Ok(Exit::Done)
}

/// What a point fixes beside model and device.
fn settings(job: &Job) -> String {
    let fixed = [
        ("array", job.array.map(|n| n.to_string())),
        ("adam lanes", job.adam_lanes.map(|n| n.to_string())),
        ("groups", job.groups.map(|n| n.to_string())),
        ("MHz", job.clock_mhz.map(|n| n.to_string())),
    ];
    let fixed = fixed
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    fixed.collect::<Vec<_>>().join("; ")
}

fn collect(folder: &Path, out: &Output) -> Result<Exit, Problems> {
    let results = folder.join("results");
    let entries = std::fs::read_dir(&results)
        .map_err(|e| refused(format!("cannot read {}: {e}", results.display())))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    let mut objects = vec![];
    for path in &files {
        let object = serde_json::from_str::<Value>(&read(path)?)
            .map_err(|e| refused(format!("{} is no result: {e}", path.display())))?;
        objects.push(object);
    }
    if objects.is_empty() {
        return Err(refused(format!("{} holds no result", results.display())));
    }
    let rows = rows(&objects);
    let front = pareto_front(&rows);
    for (name, text) in [("points.csv", csv(&rows)), ("pareto.svg", picture(&rows))] {
        write_atomically(&folder.join(name), text.as_bytes()).map_err(problems)?;
    }
    let best: Vec<&str> = front.iter().map(|i| rows[*i].point.as_str()).collect();
    out.object(&json!({
        "folder": folder, "points": rows.len(), "fit": rows.iter().filter(|r| r.fits).count(), "pareto": best,
    }));
    let mut lines = vec![format!(
        "{}: {} points, {} fit; points.csv, pareto.svg. Not beaten:",
        folder.display(),
        rows.len(),
        rows.iter().filter(|r| r.fits).count()
    )];
    for i in front {
        let r = &rows[i];
        lines.push(format!(
            "  {}  {:<22} {:<10} {:>3} x {:<3} {:>9.4} ms {:>5.1} % ({})  {}  {}",
            r.point,
            r.model,
            r.device,
            r.array,
            r.array,
            r.ms,
            100.0 * r.share(),
            r.kind,
            r.settings,
            r.set
        ));
    }
    out.say(lines.join("\n"));
    Ok(Exit::Done)
}
