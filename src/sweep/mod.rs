//! Design space: a sweep file becomes self-contained jobs, jobs become results, results become a table and a picture.
//!
//! ```text
//! sweep.toml ─► points ─► jobs/p0001.json ─► results/p0001.json ─► points.csv, pareto.svg
//!                          (any machine)      (exists: not run again)
//! ```

mod collect;
mod plan;

pub use collect::{Row, csv, pareto_front, picture, rows};
pub use plan::{Job, SweepError, jobs, parse};

/// A Slurm array script that runs the jobs of a folder: `count` of them, one per task.
pub fn slurm_script(name: &str, count: usize) -> String {
    format!(
        "#!/bin/bash\n\
         # Runs the jobs of this folder as a Slurm array: sbatch sweep.sbatch\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --array=1-{count}\n\
         #SBATCH --cpus-per-task=2\n\
         #SBATCH --mem=4G\n\
         #SBATCH --time=04:00:00\n\
         #SBATCH --output=logs/%a.txt\n\
         set -euo pipefail\n\
         cd \"${{SLURM_SUBMIT_DIR:-.}}\"\n\
         point=$(printf 'p%04d' \"$SLURM_ARRAY_TASK_ID\")\n\
         exec \"${{NFGEN:-nfgen}}\" sweep job \"jobs/$point.json\" --results results\n"
    )
}

#[cfg(test)]
mod tests;
