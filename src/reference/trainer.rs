//! The trainer: windows of tokens in, losses, gradients and updated state out.

use super::error::{ReferenceError, Result};
use super::functions::Functions;
use super::pass::{Lane, MomentView, Pass, TensorView, Trace};
use super::rows;
use super::simd::Level;
use super::state::{Moments, State};
use super::team::Team;
use super::tensors::TensorId;
use super::update::Storage;
use super::workspace::{Exponents, Workspace};
use crate::config::model::ModelConfig;
use crate::num::block::MAX_K;
use crate::num::constants::{Constants, position_code};
use crate::num::fp32;
use crate::num::schedule::StepScalars;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// What one training step reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Mean cross-entropy over the window in nats, before the update.
    pub loss: f32,
    /// The exact sum of token losses in units of 2^-24 nats (over the whole batch).
    pub loss_q24: i64,
    /// Tokens whose largest logit was the target's.
    pub correct: usize,
    /// Learning rate of the step.
    pub lr: f32,
}

/// Loss and hits of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowResult {
    /// Sum of token losses in units of 2^-24 nats.
    pub loss_q24: i64,
    pub correct: usize,
    pub tokens: usize,
}

impl WindowResult {
    /// Mean loss in nats.
    pub fn mean_loss(&self) -> f64 {
        self.loss_q24 as f64 / 16_777_216.0 / self.tokens.max(1) as f64
    }
}

/// A model in training.
pub struct Trainer {
    core: Core,
    state: State,
    team: Team,
}

/// What a pass reads, and its buffers.
struct Core {
    model: ModelConfig,
    constants: Constants,
    functions: Functions,
    position: Vec<f32>,
    ws: Workspace,
    level: Level,
}

/// What follows a forward pass.
#[derive(Clone, Copy)]
enum Then {
    /// Nothing: logits or losses only.
    Stop,
    /// Backward; gradients stay in the workspace.
    Gradients,
    /// Backward with updates.
    Update(StepScalars),
}

impl Core {
    fn pass<'a>(
        &'a self,
        views: &'a [TensorView],
        tokens: &'a [u32],
        targets: &'a [u32],
        then: Then,
    ) -> Pass<'a> {
        Pass {
            model: &self.model,
            c: &self.constants,
            f: &self.functions,
            position: &self.position,
            ws: &self.ws,
            tensors: views,
            level: self.level,
            tokens,
            targets,
            gradient: !matches!(then, Then::Stop),
            update: match then {
                Then::Update(scalars) => Some(scalars),
                _ => None,
            },
            trace: None,
        }
    }
}

impl Trainer {
    /// A trainer on `threads` threads; results do not depend on their number.
    pub fn new(model: &ModelConfig, state: State, threads: usize) -> Result<Self> {
        Self::with_level(model, state, threads, Level::detect())
    }

    /// As [`Trainer::new`] with a given instruction set, which must be one of [`Level::available`].
    pub fn with_level(
        model: &ModelConfig,
        state: State,
        threads: usize,
        level: Level,
    ) -> Result<Self> {
        let longest = [
            model.seq_len,
            3 * model.embed_dim,
            model.ff_dim,
            model.vocab,
        ];
        let longest = longest.into_iter().max().unwrap_or(0);
        if longest > MAX_K {
            return Err(ReferenceError::DotProductTooLong {
                got: longest,
                max: MAX_K,
            });
        }
        if model.heads == 0 || !model.embed_dim.is_multiple_of(model.heads) {
            return Err(ReferenceError::Invalid(format!(
                "{} heads do not divide a width of {}",
                model.heads, model.embed_dim
            )));
        }
        let level = if Level::available().contains(&level) {
            level
        } else {
            Level::detect()
        };
        state.check(model)?;
        let team = Team::new(threads);
        let core = Core {
            model: model.clone(),
            constants: Constants::new(model),
            functions: Functions::new(model),
            position: position_code(model.seq_len, model.embed_dim),
            ws: Workspace::new(model, team.count()),
            level,
        };
        let trainer = Self { core, state, team };
        trainer.refresh_exponents();
        Ok(trainer)
    }

    pub fn model(&self) -> &ModelConfig {
        &self.core.model
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn into_state(self) -> State {
        self.state
    }

    /// Replaces the state by one of the same model.
    pub fn set_state(&mut self, state: State) -> Result<()> {
        state.check(&self.core.model)?;
        self.state = state;
        self.refresh_exponents();
        Ok(())
    }

    fn refresh_exponents(&self) {
        for (tensor, slot) in self.state.tensors.iter().zip(&self.core.ws.weights) {
            slot.store(rows::emax(self.core.level, &tensor.w), Ordering::Relaxed);
        }
    }

    /// One step on one window of T + 1 tokens: forward, backward, update.
    pub fn step(&mut self, window: &[u32]) -> Result<StepResult> {
        self.step_batch(&[window])
    }

    /// One step on the mean gradient of several windows of T + 1 tokens.
    pub fn step_batch(&mut self, windows: &[&[u32]]) -> Result<StepResult> {
        self.check_windows(windows)?;
        let scalars = self.state.schedule.advance(&self.core.constants);
        let mut total = WindowResult::default();
        if let [window] = windows {
            total = self.run(window, Then::Update(scalars), None)?;
        } else {
            let mut sums: Vec<Vec<f32>> = Vec::new();
            for window in windows {
                let result = self.run(window, Then::Gradients, None)?;
                total.loss_q24 += result.loss_q24;
                total.correct += result.correct;
                for (i, grad) in self.core.ws.grads.iter_mut().enumerate() {
                    match sums.get_mut(i) {
                        Some(sum) => rows::scale_add(self.core.level, sum, None, grad.whole()),
                        None => sums.push(grad.whole().to_vec()),
                    }
                }
            }
            self.update_from(&sums, fp32::from_f64(1.0 / windows.len() as f64), scalars)?;
        }
        let mean = fp32::mul(
            fp32::from_i64(total.loss_q24),
            self.core.constants.loss_scale,
        );
        Ok(StepResult {
            loss: if windows.len() == 1 {
                mean
            } else {
                fp32::mul(mean, fp32::from_f64(1.0 / windows.len() as f64))
            },
            loss_q24: total.loss_q24,
            correct: total.correct,
            lr: scalars.lr,
        })
    }

    /// As [`Trainer::step`], showing every intermediate tensor to `trace` (on one thread).
    pub fn step_traced(&mut self, window: &[u32], trace: &mut Trace<'_>) -> Result<StepResult> {
        self.check_windows(&[window])?;
        let scalars = self.state.schedule.advance(&self.core.constants);
        let team = std::mem::replace(&mut self.team, Team::new(1));
        let result = self.run(window, Then::Update(scalars), Some(trace));
        self.team = team;
        let result = result?;
        Ok(StepResult {
            loss: fp32::mul(
                fp32::from_i64(result.loss_q24),
                self.core.constants.loss_scale,
            ),
            loss_q24: result.loss_q24,
            correct: result.correct,
            lr: scalars.lr,
        })
    }

    /// Loss of one window of 2 to T + 1 tokens; the state stays as it is.
    pub fn eval(&mut self, window: &[u32]) -> Result<WindowResult> {
        self.check_length(window.len(), 2, self.core.model.seq_len + 1)?;
        self.check_tokens(window)?;
        self.run(window, Then::Stop, None)
    }

    /// Logits [t, V] after each of 1 to T tokens.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_length(tokens.len(), 1, self.core.model.seq_len)?;
        self.check_tokens(tokens)?;
        self.run_pass(tokens, &[], Then::Stop, None)?;
        let used = tokens.len() * self.core.model.vocab;
        let logits = self.core.ws.z.whole()[..used].to_vec();
        match rows::is_finite(&logits) {
            true => Ok(logits),
            false => Err(ReferenceError::NotFinite { tensor: "z".into() }),
        }
    }

    /// Gradients of one window of T + 1 tokens, in the order of [`TensorId::all`]; the state stays as it is.
    pub fn gradients(&mut self, window: &[u32]) -> Result<(WindowResult, Vec<Vec<f32>>)> {
        self.check_windows(&[window])?;
        let result = self.run(window, Then::Gradients, None)?;
        let grads = self
            .core
            .ws
            .grads
            .iter_mut()
            .map(|g| g.whole().to_vec())
            .collect();
        Ok((result, grads))
    }

    fn check_windows(&self, windows: &[&[u32]]) -> Result<()> {
        if windows.is_empty() {
            return Err(ReferenceError::Invalid(
                "a batch needs at least one window".into(),
            ));
        }
        for window in windows {
            let want = self.core.model.seq_len + 1;
            self.check_length(window.len(), want, want)?;
            self.check_tokens(window)?;
        }
        Ok(())
    }

    fn check_length(&self, got: usize, least: usize, most: usize) -> Result<()> {
        if (least..=most).contains(&got) {
            return Ok(());
        }
        let want = if least == most {
            format!("{most}")
        } else {
            format!("{least} to {most}")
        };
        Err(ReferenceError::WindowLength { got, want })
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        let vocab = self.core.model.vocab;
        match tokens.iter().position(|&t| t as usize >= vocab) {
            None => Ok(()),
            Some(position) => Err(ReferenceError::Token {
                position,
                value: tokens[position],
                vocab,
            }),
        }
    }

    fn run(
        &mut self,
        window: &[u32],
        then: Then,
        trace: Option<&mut Trace<'_>>,
    ) -> Result<WindowResult> {
        let n = window.len() - 1;
        self.run_pass(&window[..n], &window[1..], then, trace)?;
        self.core.ws.exponents.get(Exponents::DZ)?;
        Ok(WindowResult {
            loss_q24: self.core.ws.loss_q24.load(Ordering::Relaxed),
            correct: self.core.ws.correct.load(Ordering::Relaxed),
            tokens: n,
        })
    }

    fn run_pass(
        &mut self,
        tokens: &[u32],
        targets: &[u32],
        then: Then,
        trace: Option<&mut Trace<'_>>,
    ) -> Result<()> {
        self.core.ws.exponents.clear();
        self.core.ws.loss_q24.store(0, Ordering::Relaxed);
        self.core.ws.correct.store(0, Ordering::Relaxed);
        let views = self.views();
        let hook = trace.map(Mutex::new);
        let show = |name: &str, shape: [usize; 2], values: &[f32]| {
            if let Some(Ok(mut trace)) = hook.as_ref().map(Mutex::lock) {
                trace(name, shape, values);
            }
        };
        let mut pass = self.core.pass(&views, tokens, targets, then);
        if hook.is_some() {
            pass.trace = Some(&show);
        }
        let error = Mutex::new(None);
        let scratch = &pass.ws.scratch;
        self.team.run(&|member| {
            let mut scratch = scratch[member.index]
                .lock()
                .unwrap_or_else(|e| e.into_inner());
            let mut lane = Lane::new(member, &mut scratch, tokens.len());
            // Every member sees the same exponents, so all stop at the same place.
            let result = pass.forward(&mut lane).and_then(|()| match then {
                Then::Stop => Ok(()),
                Then::Gradients | Then::Update(_) => pass.backward(&mut lane),
            });
            if let (Err(e), 0) = (result, member.index)
                && let Ok(mut slot) = error.lock()
            {
                *slot = Some(e);
            }
        });
        let failed = error.into_inner().unwrap_or_else(|e| e.into_inner());
        match (failed, then) {
            (Some(e), _) => Err(e),
            (None, Then::Update(_)) => self.adopt_exponents(),
            (None, _) => Ok(()),
        }
    }

    fn views(&mut self) -> Vec<TensorView> {
        let seed = self.state.seed;
        let model = &self.core.model;
        let view = |tensor: &mut super::state::TensorState| {
            let moments = match &mut tensor.moments {
                Moments::None => MomentView::None,
                Moments::Fp32 { m, v } | Moments::Bf16 { m, v } => MomentView::Float {
                    m: m.as_mut_ptr(),
                    v: v.as_mut_ptr(),
                },
                Moments::Int8 {
                    m,
                    v,
                    m_scale,
                    v_scale,
                } => MomentView::Int8 {
                    m: m.as_mut_ptr(),
                    v: v.as_mut_ptr(),
                    m_scale: m_scale.as_mut_ptr(),
                    v_scale: v_scale.as_mut_ptr(),
                },
            };
            TensorView {
                w: tensor.w.as_mut_ptr(),
                moments,
                len: tensor.w.len(),
                columns: tensor.shape[1],
                storage: Storage::of(model, seed, tensor.id.matrix()),
            }
        };
        self.state.tensors.iter_mut().map(view).collect()
    }

    /// Takes over the exponents of the weights just written.
    fn adopt_exponents(&mut self) -> Result<()> {
        for (i, tensor) in self.state.tensors.iter().enumerate() {
            let e = self.core.ws.new_weights[i].swap(0, Ordering::Relaxed);
            self.core.ws.weights[i].store(e, Ordering::Relaxed);
            if e == 255 {
                return Err(ReferenceError::NotFinite {
                    tensor: tensor.id.name(),
                });
            }
        }
        Ok(())
    }

    /// Updates every tensor from `sums * scale`.
    fn update_from(&mut self, sums: &[Vec<f32>], scale: f32, scalars: StepScalars) -> Result<()> {
        let ids = TensorId::all(&self.core.model);
        let views = self.views();
        let pass = self.core.pass(&views, &[], &[], Then::Update(scalars));
        for (id, sum) in ids.into_iter().zip(sums) {
            // SAFETY: this is the only thread.
            unsafe {
                let grad = pass.ws.grads[id.index()].part_mut(0..sum.len());
                grad.copy_from_slice(sum);
                rows::scale(self.core.level, grad, scale);
                pass.apply(id, 0..sum.len())?;
            }
        }
        self.adopt_exponents()
    }
}
