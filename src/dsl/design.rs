//! A top module with everything below it.

use super::node::ModuleDef;
use super::print::print_module;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All modules of a design, each once.
#[derive(Clone, Debug)]
pub struct Design {
    top: Arc<ModuleDef>,
    modules: BTreeMap<String, Arc<ModuleDef>>,
    memory_files: BTreeMap<String, String>,
}

/// Two things of one name differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// Two modules share a name but not their body.
    #[error("two different modules are called `{0}`: put every structural parameter into the name")]
    ModuleName(String),
    /// Two memories share an initial file but not its contents.
    #[error("two memories want different contents in `{0}`")]
    MemoryFile(String),
}

impl Design {
    /// Collects the modules below `top`.
    pub fn new(top: Arc<ModuleDef>) -> Result<Self, DesignError> {
        let mut design = Design {
            top: top.clone(),
            modules: BTreeMap::new(),
            memory_files: BTreeMap::new(),
        };
        design.collect(&top)?;
        Ok(design)
    }

    fn collect(&mut self, def: &Arc<ModuleDef>) -> Result<(), DesignError> {
        if let Some(known) = self.modules.get(&def.name) {
            return if known == def {
                Ok(())
            } else {
                Err(DesignError::ModuleName(def.name.clone()))
            };
        }
        self.modules.insert(def.name.clone(), def.clone());
        for mem in def.mems.iter().filter(|m| def.mem_is_live(m)) {
            if let Some(init) = &mem.spec.init {
                let text = init.text(mem.spec.depth, mem.spec.width);
                let known = self.memory_files.entry(init.file.clone());
                if *known.or_insert_with(|| text.clone()) != text {
                    return Err(DesignError::MemoryFile(init.file.clone()));
                }
            }
        }
        for inst in &def.instances {
            self.collect(&inst.def)?;
        }
        Ok(())
    }

    /// The top module.
    pub fn top(&self) -> &Arc<ModuleDef> {
        &self.top
    }

    /// The modules by name.
    pub fn modules(&self) -> impl Iterator<Item = &Arc<ModuleDef>> {
        self.modules.values()
    }

    /// `(file name, text)` of every module, by name. `header` opens each file as a comment.
    pub fn print_verilog(&self, header: &str) -> Vec<(String, String)> {
        self.modules
            .values()
            .map(|def| (format!("{}.v", def.name), print_module(def, header)))
            .collect()
    }

    /// `(file name, text)` of every `$readmemh` file, by name.
    pub fn memory_files(&self) -> Vec<(String, String)> {
        self.memory_files
            .iter()
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect()
    }
}
