//! A launch: what every group is given between one start and one interrupt.

use std::fmt;

use super::error::shortened;
use super::isa::{RowConfig, Store};
use super::packet::{self, Packet};
use super::{ArrayConfig, Error, Result};
use crate::bitnet::backend::Phases;

/// Bits of a byte address on the read ports.
const ADDRESS_BITS: u32 = 40;

/// A group's part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupLaunch {
    /// Program segment.
    pub packets: Vec<Packet>,
    /// Byte address of the weight segment (a multiple of 16).
    pub weight_addr: u64,
    /// Beats of the weight segment.
    pub weight_beats: u32,
    /// 32-bit words that the group stores.
    pub results: u32,
    /// The group takes tokens and chain words from the group before.
    pub linked: bool,
}

/// All groups; `None` is not started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// One entry per port.
    pub groups: Vec<Option<GroupLaunch>>,
}

/// What a launch gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchResult {
    /// Stored words of every group, in order.
    pub outputs: Vec<Vec<u32>>,
    /// Cycles.
    pub phases: Phases,
}

/// Something that carries out launches: the model or the simulated RTL.
pub trait Machine {
    /// Name for messages and reports.
    fn name(&self) -> &'static str;
    /// The build.
    fn config(&self) -> &ArrayConfig;
    /// Puts data into the memory and returns its address (a multiple of 256).
    fn place(&mut self, bytes: &[u8]) -> Result<u64>;
    /// Runs a launch to its end.
    fn run(&mut self, launch: &Launch) -> Result<LaunchResult>;
}

impl Launch {
    /// Checks everything that would make the array wait for ever or address what it has not.
    pub fn check(&self, config: &ArrayConfig) -> Result<()> {
        if self.groups.len() != config.ports as usize {
            return Err(Error::Program(format!(
                "{} groups for an array of {} ports",
                self.groups.len(),
                config.ports
            )));
        }
        if self.groups.iter().all(Option::is_none) {
            return Err(Error::Program("no group has a program".into()));
        }
        for (index, group) in self.groups.iter().enumerate() {
            if let Some(group) = group {
                check_group(index, group, config).map_err(|e| e.at(&format!("group {index}")))?;
            }
        }
        Ok(())
    }

    /// Steps of every row that the launch asks for.
    pub fn steps(&self) -> u128 {
        let work = |packet: &Packet| match packet {
            Packet::Tiles(w) | Packet::Execute(w) => {
                u128::from(w.total) * u128::from(w.tokens) * u128::from(w.steps)
            }
            _ => 0,
        };
        let packets = self.groups.iter().flatten().flat_map(|g| &g.packets);
        packets.map(work).sum()
    }

    /// Reads the text form: `group N [linked] [weights=ADDRESS:BEATS] [results=N]`, then one
    /// packet per line; `#` starts a comment.
    pub fn parse(text: &str, config: &ArrayConfig) -> Result<Self> {
        let mut launch = Self {
            groups: vec![None; config.ports as usize],
        };
        let mut current: Option<usize> = None;
        for (number, line) in text.lines().enumerate() {
            let at = |e: Error| e.at(&format!("line {}", number + 1));
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            if let Some(rest) = line.strip_prefix("group ") {
                let (index, group) = parse_group(rest, launch.groups.len()).map_err(at)?;
                if launch.groups[index].is_some() {
                    return Err(at(Error::Program(format!("`group {index}` appears twice"))));
                }
                launch.groups[index] = Some(group);
                current = Some(index);
                continue;
            }
            let Some(group) = current.and_then(|i| launch.groups[i].as_mut()) else {
                return Err(at(Error::Program("a packet before `group N`".into())));
            };
            group.packets.push(Packet::parse(line).map_err(at)?);
        }
        Ok(launch)
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups.iter().enumerate() {
            let Some(group) = group else { continue };
            write!(f, "group {index}")?;
            if group.linked {
                write!(f, " linked")?;
            }
            if group.weight_beats > 0 {
                write!(f, " weights={}:{}", group.weight_addr, group.weight_beats)?;
            }
            writeln!(f, " results={}", group.results)?;
            for packet in &group.packets {
                writeln!(f, "  {packet}")?;
            }
        }
        Ok(())
    }
}

fn parse_group(text: &str, groups: usize) -> Result<(usize, GroupLaunch)> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let index = first
        .parse::<usize>()
        .ok()
        .filter(|&i| i < groups)
        .ok_or_else(|| {
            Error::Program(format!(
                "group `{}`; accepted: 0 to {}",
                shortened(first),
                groups - 1
            ))
        })?;
    let mut group = GroupLaunch::default();
    for word in words {
        let bad = || {
            Error::Program(format!(
                "`{}`; accepted: linked, weights=ADDRESS:BEATS, results=N",
                shortened(word)
            ))
        };
        match word.split_once('=') {
            None if word == "linked" => group.linked = true,
            Some(("weights", value)) => {
                let (addr, beats) = value.split_once(':').ok_or_else(bad)?;
                group.weight_addr = addr.parse().map_err(|_| bad())?;
                group.weight_beats = beats.parse().map_err(|_| bad())?;
            }
            Some(("results", value)) => group.results = value.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        }
    }
    Ok((index, group))
}

fn check_group(index: usize, group: &GroupLaunch, config: &ArrayConfig) -> Result<()> {
    let rows = config.group_rows();
    let refuse = |what: String| Err(Error::Program(what));
    if group.linked && index == 0 {
        return refuse("the first group cannot be linked".into());
    }
    if !group.weight_addr.is_multiple_of(16) {
        return refuse(format!(
            "weight address {} is no multiple of 16",
            group.weight_addr
        ));
    }
    let end = u128::from(group.weight_addr) + 16 * u128::from(group.weight_beats);
    if end > 1 << ADDRESS_BITS {
        return refuse(format!(
            "the weight segment ends at byte {end}; addresses have {ADDRESS_BITS} bits"
        ));
    }
    let ends = |packet: &Packet| match packet {
        Packet::End { .. } => true,
        Packet::Tiles(work) | Packet::Execute(work) => work.is_final,
        _ => false,
    };
    let ending = group.packets.iter().filter(|p| ends(p)).count();
    if ending != 1 || !group.packets.last().is_some_and(ends) {
        return refuse("exactly the last packet must be `end` or have `final`".into());
    }
    let mut dealt = 0u64;
    for packet in &group.packets {
        match packet {
            Packet::Configure { low, high, row } => {
                if u32::from(*high) >= rows {
                    return refuse(format!("row {high}; the group has {rows}"));
                }
                let storing = row.store != Store::None;
                if storing && (u32::from(*low) + 1 != rows || low != high) {
                    return refuse(format!("row {low} stores; only row {} can", rows - 1));
                }
                check_row(row, config)?;
            }
            Packet::Load { low, high, .. } => check_pairs(*low, *high, rows)?,
            Packet::Tiles(work) | Packet::Execute(work) => {
                let dealing = matches!(packet, Packet::Tiles(_));
                check_work(work, dealing, rows)?;
                if dealing && !work.is_final {
                    return refuse("`tiles` must be the last packet, with `final`".into());
                }
                if work.is_final && work.store == Store::None {
                    return refuse("`final` work must store".into());
                }
                if dealing {
                    dealt += u64::from(work.total) * u64::from(work.unit);
                }
            }
            Packet::End { .. } => {}
        }
    }
    if dealt != u64::from(group.weight_beats) {
        return refuse(format!(
            "tiles take {dealt} beats, the weight segment has {}",
            group.weight_beats
        ));
    }
    Ok(())
}

fn check_row(row: &RowConfig, config: &ArrayConfig) -> Result<()> {
    if row.low_unsigned && config.lane_sign == super::LaneSign::Signed {
        return Err(Error::Program(
            "`ulo` needs a build with unsigned low lanes".into(),
        ));
    }
    let words = config.lmm_words;
    if u32::from(row.a_base) >= words || u32::from(row.b_base) >= words {
        return Err(Error::Program(format!(
            "base {} or {} lies outside the {words} words of a half",
            row.a_base, row.b_base
        )));
    }
    Ok(())
}

fn check_pairs(low: u8, high: u8, rows: u32) -> Result<()> {
    if low > high || u32::from(high) >= rows / 2 {
        return Err(Error::Program(format!(
            "pairs {low}..{high}; the group has 0..{}",
            rows / 2 - 1
        )));
    }
    Ok(())
}

fn check_work(work: &packet::Work, dealing: bool, rows: u32) -> Result<()> {
    check_pairs(work.pair_low, work.pair_high, rows)?;
    for (name, value) in [
        ("outputs", work.total),
        ("tile", work.tile.into()),
        ("tokens", work.tokens.into()),
        ("steps", work.steps.into()),
        ("digits", work.digits.into()),
    ] {
        if value == 0 {
            return Err(Error::Program(format!("{name}=0; at least 1 is needed")));
        }
    }
    if !work.steps.is_multiple_of(work.digits.into()) {
        return Err(Error::Program(format!(
            "{} steps are no multiple of {} digits",
            work.steps, work.digits
        )));
    }
    if dealing && work.unit == 0 {
        return Err(Error::Program("tiles with unit=0".into()));
    }
    if !dealing && work.total > u32::from(work.tile) {
        return Err(Error::Program(format!(
            "an execution of {} outputs with tile={}; at most one tile is loaded",
            work.total, work.tile
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "group 0 weights=256:4 results=1\n\
        row 0..0 ex1=sma4 acc s1=a s2=b dest=x fb=t2 fa=frag a=0,1,0 b=4,1,1\n\
        load pairs=0..0 into=both base=0 data=1,2,3\n\
        tiles pairs=0..0 base=4 outputs=1 tile=1 tokens=1 steps=4 digits=4 unit=4 store=last final\n";

    #[test]
    fn text_round_trips_and_faults_are_named() {
        let config = ArrayConfig::default();
        let launch = Launch::parse(GOOD, &config).unwrap();
        launch.check(&config).unwrap();
        assert_eq!(Launch::parse(&launch.to_string(), &config).unwrap(), launch);
        for (from, to, expected) in [
            ("weights=256:4", "weights=256:5", "has 5"),
            ("weights=256:4", "weights=250:4", "multiple of 16"),
            (" final", "", "must be `end` or have `final`"),
            ("steps=4", "steps=5", "no multiple of 4 digits"),
            ("row 0..0", "row 0..16", "the group has 16"),
            ("dest=x", "store=last", "only row 15 can"),
            ("tiles pairs=0..0", "tiles pairs=0..8", "0..7"),
            ("store=last", "store=none", "must store"),
            ("group 0", "group 4", "group `4`; accepted: 0 to 3"),
            ("load ", "group 0\nload ", "line 3: `group 0` appears twice"),
            ("=256:4", "=1099511627760:4", "addresses have 40 bits"),
            ("load ", "lode ", "line 3"),
            ("b=4,1,1", "b=512,1,1", "outside the 512 words"),
        ] {
            let text = GOOD.replace(from, to);
            let error = Launch::parse(&text, &config)
                .and_then(|l| l.check(&config))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    proptest! {
        #[test]
        fn text_never_panics(cut in 0usize..300, insert in "[ -~]{0,6}") {
            let config = ArrayConfig::default();
            let mut text = GOOD.to_owned();
            text.insert_str(cut.min(text.len()), &insert);
            if let Ok(launch) = Launch::parse(&text, &config) {
                let _ = launch.check(&config);
            }
        }
    }
}
