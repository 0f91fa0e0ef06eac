//! Validation: the paper's 64 windows, the whole split, or any text.

use super::corpus::{Corpus, too_short};
use super::dotnet_random::DotNetRandom;
use super::error::{ReferenceError, Result};
use super::trainer::{Trainer, WindowResult};

/// Which windows are evaluated.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The paper's: 64 random windows of the validation split.
    Paper64,
    /// Consecutive windows over the whole validation split.
    Full,
    /// Consecutive windows over the whole text.
    File,
}

/// Result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Evaluation {
    /// Mean cross-entropy in nats.
    pub loss: f64,
    /// Share of tokens whose largest logit was right.
    pub accuracy: f64,
    /// Loss in bits per token (per character for byte vocabularies).
    pub bpc: f64,
    pub windows: usize,
    pub tokens: usize,
}

/// Seed and number of the paper's windows.
const PAPER_SEED: i32 = 999;
const PAPER_WINDOWS: usize = 64;

/// First tokens of a protocol's windows in its text, which is returned as well.
pub fn windows(
    corpus: &Corpus,
    protocol: Protocol,
    seq_len: usize,
) -> Result<(&[u32], Vec<usize>)> {
    let text = match protocol {
        Protocol::Paper64 | Protocol::Full => corpus.validation(),
        Protocol::File => corpus.all(),
    };
    if text.len() <= seq_len + 1 {
        let (part, bytes) = match protocol {
            // A tenth of the bytes, rounded up.
            Protocol::Paper64 | Protocol::Full => ("validation", 10 * (seq_len + 1) + 1),
            Protocol::File => ("evaluated", seq_len + 2),
        };
        return Err(too_short((part, text.len(), seq_len), bytes));
    }
    let starts = match protocol {
        Protocol::Paper64 => {
            let bound = u32::try_from(text.len() - seq_len - 1)
                .map_err(|_| ReferenceError::corpus("the corpus is above 4 GB", "use a part"))?;
            let mut random = DotNetRandom::new(PAPER_SEED);
            (0..PAPER_WINDOWS)
                .map(|_| random.next(bound) as usize)
                .collect()
        }
        Protocol::Full | Protocol::File => (0..(text.len() - 1) / seq_len)
            .map(|i| i * seq_len)
            .collect(),
    };
    Ok((text, starts))
}

/// Evaluates the trainer's state.
pub fn evaluate(
    trainer: &mut Trainer,
    corpus: &Corpus,
    protocol: Protocol,
    mut after_window: impl FnMut(usize, usize),
) -> Result<Evaluation> {
    let seq_len = trainer.model().seq_len;
    let (text, starts) = windows(corpus, protocol, seq_len)?;
    let mut total = WindowResult::default();
    for (i, &start) in starts.iter().enumerate() {
        let result = trainer.eval(&text[start..start + seq_len + 1])?;
        total.loss_q24 += result.loss_q24;
        total.correct += result.correct;
        total.tokens += result.tokens;
        after_window(i + 1, starts.len());
    }
    let loss = total.mean_loss();
    Ok(Evaluation {
        loss,
        accuracy: total.correct as f64 / total.tokens as f64,
        bpc: loss / std::f64::consts::LN_2,
        windows: starts.len(),
        tokens: total.tokens,
    })
}
