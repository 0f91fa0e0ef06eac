//! What the verbs of the reference trainer share.

use std::path::{Path, PathBuf};

use crate::config::{self, ModelConfig};
use crate::diag::{Diagnostic, Problems};
use crate::reference::checkpoint::Checkpoint;
use crate::reference::corpus::{Corpus, LineEndings};
use crate::reference::{ReferenceError, State};

/// `--corpus FILE --line-endings KIND`.
#[derive(Clone, Debug, clap::Args)]
pub struct CorpusArgs {
    /// Text to work on
    #[arg(long, value_name = "FILE")]
    pub corpus: PathBuf,
    /// Line endings as the model sees them
    #[arg(long, value_enum, default_value_t = LineEndings::Keep, value_name = "KIND")]
    pub line_endings: LineEndings,
}

impl CorpusArgs {
    /// The text, checked against a vocabulary.
    pub fn load(&self, vocab: usize) -> Result<Corpus, Problems> {
        Corpus::load(&self.corpus, self.line_endings, vocab).map_err(problems)
    }
}

/// Threads when none are asked for: one per processor, at most 8 (more do not pay for models of this size).
pub fn threads(asked: Option<usize>) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    // More threads than processors only wait for each other.
    let most = (4 * available).clamp(8, 64);
    asked.unwrap_or(available.min(8)).clamp(1, most)
}

/// An error of the reference trainer as a diagnostic.
pub fn problems(error: ReferenceError) -> Problems {
    let (code, help) = match &error {
        ReferenceError::Read { path, source } => {
            return Diagnostic::cannot_read(path, source).into();
        }
        ReferenceError::Write { path, source } => {
            return Diagnostic::cannot_write(path, source).into();
        }
        ReferenceError::Token { .. } => (
            "nf::reference::token",
            "use a text whose bytes are below vocab, or a model with a larger vocab",
        ),
        ReferenceError::WindowLength { .. } => (
            "nf::reference::window_length",
            "give windows of seq_len + 1 tokens, one after the other",
        ),
        ReferenceError::NotFinite { .. } => (
            "nf::reference::not_finite",
            "lower lr_peak, or continue from an earlier checkpoint",
        ),
        ReferenceError::DotProductTooLong { .. } => (
            "nf::reference::too_long",
            "use a smaller vocab, seq_len, embed_dim or ff_dim",
        ),
        ReferenceError::State { .. } => (
            "nf::reference::state",
            "use the checkpoint's own model, or one of the same shape",
        ),
        ReferenceError::File { .. } => (
            "nf::reference::file",
            "copy the file again, or use an earlier one",
        ),
        ReferenceError::Corpus { accepts, .. } => ("nf::reference::corpus", accepts.as_str()),
        ReferenceError::Invalid(_) => (
            "nf::reference::invalid",
            "`nfgen VERB --help` shows what is accepted",
        ),
    };
    Diagnostic::new(code, error.to_string(), help).into()
}

/// A checkpoint of either kind, with `--set` applied to its model.
pub fn load_checkpoint(
    path: &Path,
    set: &[String],
) -> Result<(ModelConfig, State, Checkpoint), Problems> {
    load_checkpoint_as(path, set, |_| {})
}

/// The same; `defaults` may change what the file says of its model before `set` does.
pub fn load_checkpoint_as(
    path: &Path,
    set: &[String],
    defaults: impl FnOnce(&mut ModelConfig),
) -> Result<(ModelConfig, State, Checkpoint), Problems> {
    let checkpoint = Checkpoint::load_any(path).map_err(problems)?;
    let mut model = checkpoint.model.clone();
    defaults(&mut model);
    let model = config::with_arguments(&model, set)?;
    let state = checkpoint.clone().into_model(&model).map_err(problems)?;
    Ok((model, state, checkpoint))
}
