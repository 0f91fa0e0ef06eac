//! `nfgen check`: a model, resolved.

use serde_json::json;

use super::{Exit, ModelArgs, Output};
use crate::config::schema::grouped;
use crate::config::{VocabularyBudget, fields};
use crate::diag::Problems;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen check --model shakespeare-334k\n  \
                        nfgen check --model my_model.toml --set layers=6 --json\n  \
                        nfgen check --model small --toml > my_model.toml   # a start for a model of your own")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Print the model as a TOML file with every key
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let config = args.model.resolve()?;
    let budget = VocabularyBudget::of(&config);
    out.object(&json!({ "model": config, "vocabulary_budget": budget }));
    out.say(fields::to_toml(&config).trim_end());
    if !args.toml {
        out.say(format!(
            "\n{} parameters: {} in the embedding ({:.1} %), {} in the layers",
            grouped(budget.parameters as u64),
            grouped(budget.embedding as u64),
            100.0 * budget.embedding_share,
            grouped(budget.layers as u64),
        ));
    }
    if let Some(warning) = budget.warning() {
        out.warn(&warning);
    }
    Ok(Exit::Done)
}
