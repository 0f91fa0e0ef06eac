//! Arguments that several verbs share.

use clap::Args;

use crate::config::{self, Device, ModelConfig};
use crate::diag::Problems;

/// `--model NAME|FILE` and `--set key=value`.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// Built-in model (tiny, small, shakespeare-334k, shakespeare-334k-7b, shakespeare-334k-5b) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "small")]
    pub model: String,
    /// Set any key of the model; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ModelArgs {
    /// The checked model.
    pub fn resolve(&self) -> Result<ModelConfig, Problems> {
        config::load_model(&self.model, &self.set)
    }
}

/// `--device NAME|FILE`.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    /// Device of the catalogue (`nfgen devices`) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "zcu102")]
    pub device: String,
}

impl DeviceArgs {
    pub fn resolve(&self) -> Result<Device, Problems> {
        config::load_device(&self.device)
    }
}
