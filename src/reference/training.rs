//! Whole training runs: windows, validation, log, checkpoints, and continuing to the same bit.

use super::checkpoint::{Checkpoint, RunInfo};
use super::corpus::{Corpus, LineEndings, Order, Sampler};
use super::error::{ReferenceError, Result};
use super::evaluate::{Protocol, evaluate};
use super::state::State;
use super::trainer::Trainer;
use crate::config::model::ModelConfig;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Name of the checkpoint in a run's folder.
pub const CHECKPOINT: &str = "checkpoint.safetensors";
/// Name of the log in a run's folder.
pub const LOG: &str = "log.csv";
const LOG_HEAD: &str = "step,samples,lr,train_loss,val_loss,val_accuracy,val_bpc,ms_per_sample\n";

/// What a run does beside training.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    pub folder: PathBuf,
    pub order: Order,
    pub batch: usize,
    pub line_endings: LineEndings,
    /// Steps between validations and log lines.
    pub eval_every: u32,
    pub protocol: Protocol,
    /// Steps between checkpoints.
    pub checkpoint_every: u32,
    /// Stop (and save) after this many steps of the whole run.
    pub stop_after: Option<u32>,
    pub threads: usize,
}

/// One line of the log.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct LogLine {
    pub step: u32,
    pub samples: u64,
    pub lr: f32,
    /// Mean since the last line, in nats.
    pub train_loss: f64,
    pub val_loss: f64,
    pub val_accuracy: f64,
    pub val_bpc: f64,
    pub ms_per_sample: f64,
}

/// How a run ended.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TrainReport {
    pub steps: u32,
    pub total_steps: u32,
    pub finished: bool,
    pub last: Option<LogLine>,
    pub best_val_loss: Option<f64>,
    pub best_step: Option<u32>,
    pub ms_per_sample: f64,
}

/// What the caller hears during a run.
pub enum Progress<'a> {
    /// A step is done: its number and loss.
    Step(u32, f32),
    /// A line was logged.
    Logged(&'a LogLine),
}

/// A run that can be started or continued.
pub struct Run {
    trainer: Trainer,
    options: TrainOptions,
    info: RunInfo,
    sampler: Sampler,
}

impl Run {
    /// A new run in an empty or new folder, from `state`.
    pub fn start(
        model: &ModelConfig,
        state: State,
        corpus: &Corpus,
        options: TrainOptions,
    ) -> Result<Self> {
        let folder = &options.folder;
        if folder.join(CHECKPOINT).exists() || folder.join(LOG).exists() {
            return Err(ReferenceError::Invalid(format!(
                "{} holds a run already; continue it with --resume, or choose another folder",
                folder.display()
            )));
        }
        let info = RunInfo {
            order: options.order,
            batch: options.batch,
            line_endings: options.line_endings,
            corpus_sha256: corpus.sha256().into(),
            loss_q24: 0,
            loss_tokens: 0,
            best: None,
        };
        let run = Self::new(model, state, corpus, options, info)?;
        fs::create_dir_all(&run.options.folder)
            .map_err(|e| ReferenceError::write(&run.options.folder, e))?;
        run.write_log(LOG_HEAD.into())?;
        run.save()?;
        Ok(run)
    }

    /// Continues the run of a folder. Batch, order and line endings are the run's own.
    pub fn resume(
        checkpoint: Checkpoint,
        corpus: &Corpus,
        mut options: TrainOptions,
    ) -> Result<Self> {
        let Some(info) = checkpoint.run else {
            return Err(ReferenceError::Invalid(
                "the checkpoint belongs to no run; start one from it with --init".into(),
            ));
        };
        if info.corpus_sha256 != corpus.sha256() {
            return Err(ReferenceError::corpus(
                format!(
                    "the corpus is not the one of this run: SHA-256 {} instead of {}",
                    corpus.sha256(),
                    info.corpus_sha256
                ),
                "give the text that the run was started with, with the same line endings",
            ));
        }
        options.order = info.order;
        options.batch = info.batch;
        options.line_endings = info.line_endings;
        let done = checkpoint.state.schedule.step;
        let run = Self::new(&checkpoint.model, checkpoint.state, corpus, options, info)?;
        run.cut_log(done)?;
        Ok(run)
    }

    fn new(
        model: &ModelConfig,
        state: State,
        corpus: &Corpus,
        options: TrainOptions,
        info: RunInfo,
    ) -> Result<Self> {
        if options.batch == 0 || options.eval_every == 0 || options.checkpoint_every == 0 {
            return Err(ReferenceError::Invalid(
                "batch and intervals must be at least 1".into(),
            ));
        }
        let tokens = corpus.train().len();
        Ok(Self {
            sampler: Sampler::new(info.order, model.seed, model.seq_len, tokens)?,
            trainer: Trainer::new(model, state, options.threads)?,
            options,
            info,
        })
    }

    pub fn trainer(&self) -> &Trainer {
        &self.trainer
    }

    /// Trains until the end of the schedule, `stop_after`, or `cancel`; saves at the end in any case.
    pub fn train(
        &mut self,
        corpus: &Corpus,
        cancel: &AtomicBool,
        mut progress: impl FnMut(Progress),
    ) -> Result<TrainReport> {
        let total = self.trainer.model().total_steps;
        let until = self.options.stop_after.unwrap_or(total).min(total);
        let width = self.trainer.model().seq_len + 1;
        let batch = self.info.batch as u64;
        let first = self.step();
        let (mut last, mut saved) = (None, self.step());
        let (mut all_time, mut line_time, mut line_steps) = (0.0, 0.0, 0u32);
        while self.step() < until && !cancel.load(Ordering::Relaxed) {
            let start = Instant::now();
            let drawn = u64::from(self.step()) * batch;
            let starts: Vec<usize> = (drawn..drawn + batch)
                .map(|n| self.sampler.start(n))
                .collect();
            let windows: Vec<&[u32]> = starts
                .iter()
                .map(|&s| &corpus.train()[s..s + width])
                .collect();
            let result = self.trainer.step_batch(&windows)?;
            self.info.loss_q24 += result.loss_q24;
            self.info.loss_tokens += (width as u64 - 1) * batch;
            let time = start.elapsed().as_secs_f64() * 1e3;
            all_time += time;
            line_time += time;
            line_steps += 1;
            let step = self.step();
            progress(Progress::Step(step, result.loss));
            if step.is_multiple_of(self.options.eval_every) || step == total {
                let line = self.log(
                    corpus,
                    result.lr,
                    line_time / (f64::from(line_steps) * batch as f64),
                )?;
                progress(Progress::Logged(&line));
                last = Some(line);
                (line_time, line_steps) = (0.0, 0);
            }
            if step.is_multiple_of(self.options.checkpoint_every) {
                self.save()?;
                saved = step;
            }
        }
        let steps = self.step();
        if saved != steps {
            self.save()?;
        }
        Ok(TrainReport {
            steps,
            total_steps: total,
            finished: steps >= total,
            last,
            best_val_loss: self.info.best.map(|b| b.0),
            best_step: self.info.best.map(|b| b.1),
            ms_per_sample: all_time / (f64::from(steps - first) * batch as f64).max(1.0),
        })
    }

    fn step(&self) -> u32 {
        self.trainer.state().schedule.step
    }

    fn log(&mut self, corpus: &Corpus, lr: f32, ms_per_sample: f64) -> Result<LogLine> {
        let result = evaluate(&mut self.trainer, corpus, self.options.protocol, |_, _| ())?;
        let step = self.step();
        let tokens = self.info.loss_tokens.max(1) as f64;
        let line = LogLine {
            step,
            samples: u64::from(step) * self.info.batch as u64,
            lr,
            train_loss: self.info.loss_q24 as f64 / 16_777_216.0 / tokens,
            val_loss: result.loss,
            val_accuracy: result.accuracy,
            val_bpc: result.bpc,
            ms_per_sample,
        };
        (self.info.loss_q24, self.info.loss_tokens) = (0, 0);
        if self.info.best.is_none_or(|(best, _)| line.val_loss < best) {
            self.info.best = Some((line.val_loss, step));
        }
        let text = format!(
            "{},{},{:e},{:.6},{:.6},{:.6},{:.6},{:.3}\n",
            line.step,
            line.samples,
            line.lr,
            line.train_loss,
            line.val_loss,
            line.val_accuracy,
            line.val_bpc,
            ms_per_sample
        );
        let path = self.options.folder.join(LOG);
        let wrong = |e: std::io::Error| ReferenceError::write(&path, e);
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .map_err(wrong)?;
        file.write_all(text.as_bytes()).map_err(wrong)?;
        Ok(line)
    }

    /// The run as a checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            model: self.trainer.model().clone(),
            state: self.trainer.state().clone(),
            run: Some(self.info.clone()),
        }
    }

    fn save(&self) -> Result<()> {
        self.checkpoint()
            .save(&self.options.folder.join(CHECKPOINT))
    }

    fn write_log(&self, text: String) -> Result<()> {
        super::checkpoint::write_atomically(&self.options.folder.join(LOG), text.as_bytes())
    }

    /// Drops log lines of steps after the checkpoint: they will be done again.
    fn cut_log(&self, done: u32) -> Result<()> {
        let path = self.options.folder.join(LOG);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => LOG_HEAD.into(),
            Err(e) => return Err(ReferenceError::read(&path, e)),
        };
        let keep = |line: &str| match line.split(',').next().and_then(|s| s.parse::<u32>().ok()) {
            Some(step) => {
                step <= done && line.matches(',').count() == LOG_HEAD.matches(',').count()
            }
            None => line == LOG_HEAD.trim_end(),
        };
        let kept: String = text
            .lines()
            .filter(|line| keep(line))
            .map(|line| format!("{line}\n"))
            .collect();
        self.write_log(kept)
    }
}

/// The `(step, validation loss)` points of a run's log.
pub fn read_log(folder: &Path) -> Result<Vec<(u32, f64)>> {
    let path = if folder.is_dir() {
        folder.join(LOG)
    } else {
        folder.to_path_buf()
    };
    let text = fs::read_to_string(&path).map_err(|e| ReferenceError::read(&path, e))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .skip(1)
        .enumerate()
        .map(|(i, line)| {
            let fields: Vec<&str> = line.split(',').collect();
            let step = fields.first().and_then(|s| s.parse().ok());
            let loss = fields.get(4).and_then(|s| s.parse().ok());
            step.zip(loss).ok_or_else(|| {
                ReferenceError::file(
                    &path,
                    format!(
                        "line {}: not step,samples,lr,train_loss,val_loss,...",
                        i + 2
                    ),
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::tests::odd_model;

    fn corpus() -> Corpus {
        let text: Vec<u8> = (0..4000u32).map(|i| (i * i / 7 % 29) as u8).collect();
        Corpus::from_bytes(&text, LineEndings::Keep, 29).unwrap()
    }

    fn options(folder: PathBuf) -> TrainOptions {
        TrainOptions {
            folder,
            order: Order::Epoch,
            batch: 2,
            line_endings: LineEndings::Keep,
            eval_every: 5,
            protocol: Protocol::Full,
            checkpoint_every: 4,
            stop_after: None,
            threads: 1,
        }
    }

    fn log_without_times(folder: &Path) -> Vec<String> {
        let text = fs::read_to_string(folder.join(LOG)).unwrap();
        text.lines()
            .map(|l| l.rsplit_once(',').unwrap().0.to_string())
            .collect()
    }

    #[test]
    fn an_interrupted_run_ends_as_an_unbroken_one() {
        let home = tempfile::tempdir().unwrap();
        let (corpus, model) = (
            corpus(),
            ModelConfig {
                total_steps: 23,
                ..odd_model()
            },
        );
        let go = AtomicBool::new(false);
        let whole = home.path().join("whole");
        let mut run =
            Run::start(&model, State::init(&model), &corpus, options(whole.clone())).unwrap();
        let report = run.train(&corpus, &go, |_| ()).unwrap();
        assert!(report.finished && report.best_val_loss.is_some());

        let broken = home.path().join("broken");
        let mut run = Run::start(
            &model,
            State::init(&model),
            &corpus,
            options(broken.clone()),
        )
        .unwrap();
        for stop in [3, 4, 11, 13] {
            run.options.stop_after = Some(stop);
            let report = run.train(&corpus, &go, |_| ()).unwrap();
            assert_eq!((report.steps, report.finished), (stop, false));
            let saved = Checkpoint::load(&broken.join(CHECKPOINT)).unwrap();
            run = Run::resume(saved, &corpus, options(broken.clone())).unwrap();
        }
        // Die without saving: steps 14 to 17 and a log line are lost and done again.
        run.options.checkpoint_every = 1000;
        let mut steps = 0;
        let _ = run.train(&corpus, &go, |p| {
            if let Progress::Step(..) = p {
                steps += 1;
                go.store(steps == 4, Ordering::Relaxed);
            }
        });
        let mut early = Checkpoint::load(&whole.join(CHECKPOINT)).unwrap();
        assert_eq!(early.state.schedule.step, 23);
        early = Checkpoint::load(&broken.join(CHECKPOINT)).unwrap();
        assert_eq!(early.state.schedule.step, 17);
        go.store(false, Ordering::Relaxed);
        let mut run = Run::resume(early, &corpus, options(broken.clone())).unwrap();
        run.train(&corpus, &go, |_| ()).unwrap();
        assert!(
            fs::read(whole.join(CHECKPOINT)).unwrap() == fs::read(broken.join(CHECKPOINT)).unwrap()
        );
        assert_eq!(log_without_times(&whole), log_without_times(&broken));
        assert_eq!(read_log(&whole).unwrap().len(), 5);
    }

    #[test]
    fn lines_after_the_checkpoint_are_done_again() {
        let home = tempfile::tempdir().unwrap();
        let (corpus, model) = (
            corpus(),
            ModelConfig {
                total_steps: 12,
                ..odd_model()
            },
        );
        let folder = home.path().join("run");
        let go = AtomicBool::new(false);
        let mut run = Run::start(
            &model,
            State::init(&model),
            &corpus,
            options(folder.clone()),
        )
        .unwrap();
        run.options.stop_after = Some(6);
        run.train(&corpus, &go, |_| ()).unwrap();
        let early = Checkpoint::load(&folder.join(CHECKPOINT)).unwrap();
        run.options.stop_after = None;
        run.train(&corpus, &go, |_| ()).unwrap();
        let full = log_without_times(&folder);
        fs::OpenOptions::new()
            .append(true)
            .open(folder.join(LOG))
            .unwrap()
            .write_all(b"15,30,0.")
            .unwrap();
        let mut again = Run::resume(early, &corpus, options(folder.clone())).unwrap();
        assert_eq!(log_without_times(&folder).len(), 2);
        again.train(&corpus, &go, |_| ()).unwrap();
        assert_eq!(log_without_times(&folder), full);
    }

    #[test]
    fn wrong_folders_and_texts_are_errors() {
        let home = tempfile::tempdir().unwrap();
        let model = odd_model();
        let folder = home.path().join("run");
        let run = Run::start(
            &model,
            State::init(&model),
            &corpus(),
            options(folder.clone()),
        )
        .unwrap();
        let message = Run::start(
            &model,
            State::init(&model),
            &corpus(),
            options(folder.clone()),
        )
        .err()
        .unwrap();
        assert!(message.to_string().contains("--resume"), "{message}");
        let other = Corpus::from_bytes(&[1; 4000], LineEndings::Keep, 29).unwrap();
        let message = Run::resume(run.checkpoint(), &other, options(folder))
            .err()
            .unwrap();
        assert!(
            message.to_string().contains("not the one of this run"),
            "{message}"
        );
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(
            Run::start(
                &model,
                State::init(&model),
                &corpus(),
                options(file.join("run"))
            )
            .is_err()
        );
    }
}
