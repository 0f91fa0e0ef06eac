//! Synthesises the units of a design and evaluates their netlists.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde::Serialize;

use super::cells::Counts;
use super::hierarchy::{Hierarchy, Unit};
use super::levels::{Summary, analyse};
use super::netlist::Netlist;
use super::yosys::{Target, Yosys, YosysError};

/// A synthesised unit.
#[derive(Clone, Debug, Serialize)]
pub struct Synthesised {
    pub module: String,
    /// Instances in the design, those inside other units not counted.
    pub instances: usize,
    /// Modules that differ only in the contents of a ROM and are counted with this one.
    pub alike: Vec<String>,
    /// Modules that were flattened into it.
    pub flattened: Vec<String>,
    /// Of one instance, black boxes apart.
    pub counts: Counts,
    /// Longest path in levels, black boxes included.
    pub levels: u32,
    /// Named nets along the longest register-to-register path.
    pub path: Vec<String>,
    /// The net with most loads inside the unit, and how many.
    pub widest: Option<(String, usize)>,
    /// Cell types that count for nothing here: none, if all is well.
    pub unknown: Vec<String>,
}

/// Synthesises `units` (children before parents), `jobs` at a time. `done` is called after each with its name.
pub fn synthesise(
    yosys: &Yosys,
    hierarchy: &Hierarchy,
    units: &[(Unit, usize)],
    memories: &[(String, String)],
    target: &Target<'_>,
    (jobs, cache): (usize, &Path),
    done: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Synthesised>, YosysError> {
    // The largest first, so that no long run starts when the others have ended.
    let mut queue: Vec<usize> = (0..units.len()).collect();
    queue.sort_by_key(|&i| {
        let unit = &units[i].0;
        let bytes = |name: &String| hierarchy.modules[name].text.len();
        unit.modules.iter().map(bytes).sum::<usize>()
    });
    let queue = Mutex::new(queue);
    let netlists: Mutex<BTreeMap<usize, Netlist>> = Mutex::default();
    let failure: Mutex<Option<YosysError>> = Mutex::default();
    let next = || {
        let failed = failure.lock().is_ok_and(|f| f.is_some());
        let mut queue = queue.lock().ok()?;
        if failed { None } else { queue.pop() }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, units.len().max(1)) {
            scope.spawn(|| {
                while let Some(i) = next() {
                    let unit = &units[i].0;
                    match yosys.map(hierarchy, unit, memories, target, cache) {
                        Ok(netlist) => {
                            if let Ok(mut all) = netlists.lock() {
                                all.insert(i, netlist);
                            }
                            done(&unit.top);
                        }
                        Err(error) => {
                            if let Ok(mut failure) = failure.lock() {
                                failure.get_or_insert(error);
                            }
                        }
                    }
                }
            });
        }
    });
    if let Ok(Some(error)) = failure.into_inner() {
        return Err(error);
    }
    let netlists = netlists.into_inner().unwrap_or_default();
    let mut summaries: BTreeMap<String, Summary> = BTreeMap::new();
    let mut results = vec![];
    for ((unit, instances), netlist) in units.iter().zip(netlists.values()) {
        let (counts, unknown) = netlist.counts(&unit.boxes);
        let alike = hierarchy
            .alike
            .iter()
            .filter(|(_, first)| **first == unit.top);
        let alike: Vec<String> = alike.map(|(name, _)| name.clone()).collect();
        let summary = analyse(netlist, &summaries);
        results.push(Synthesised {
            module: unit.top.clone(),
            instances: *instances,
            alike: alike.clone(),
            flattened: unit
                .modules
                .iter()
                .filter(|m| **m != unit.top)
                .cloned()
                .collect(),
            counts,
            levels: summary.levels(),
            path: summary.path.clone(),
            widest: netlist.widest(),
            unknown,
        });
        for name in alike {
            summaries.insert(name, summary.clone());
        }
        summaries.insert(unit.top.clone(), summary);
    }
    Ok(results)
}
