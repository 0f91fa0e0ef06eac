//! Drives a built trainer model (`testbench/nf_harness.cpp`) over its pipes.
//!
//! The protocol is a sequence of little-endian 32-bit words; every request has one reply
//! whose first word is 0 (ok) or 1 (no progress within the limit).

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Why a simulated transaction did not complete.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("cannot start the simulation model {path}: {source}")]
    Start {
        path: String,
        source: std::io::Error,
    },
    #[error("the simulation model ended during {during}: {source}")]
    Ended {
        during: &'static str,
        source: std::io::Error,
    },
    #[error("the design made no progress within {limit} cycles: {during}")]
    NoProgress { during: &'static str, limit: u32 },
    #[error("register {address:#05x} answered with AXI response {response}")]
    BusError { address: u32, response: u32 },
    #[error("the design broke the AXI4-Stream rules {0} times (see the messages above)")]
    Protocol(u32),
}

/// Cycle and stall counters of the simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub cycles: u64,
    /// Channel-cycles in which a stream could not move although one side wanted to.
    pub stalled: u64,
}

/// One beat of the state stream: `[w, m, v, 0]`, or `[step, p1, p2, seed]` for the last.
pub type Beat = [u32; 4];

/// A running simulation model.
pub struct Driver {
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Driver {
    /// Starts the model with plusargs; its messages (Verilator's `$display`, violations) go to
    /// stderr.
    pub fn start(model: &Path, arguments: &[String]) -> Result<Self, DriverError> {
        let failed = |source| DriverError::Start {
            path: model.display().to_string(),
            source,
        };
        let mut command = Command::new(model);
        command.args(arguments);
        if let Some(dir) = model.parent() {
            // $readmemh files lie beside the model.
            command.current_dir(dir);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipe_missing = || failed(std::io::Error::other("no pipe"));
        let to = BufWriter::with_capacity(1 << 20, child.stdin.take().ok_or_else(pipe_missing)?);
        let from = BufReader::with_capacity(1 << 20, child.stdout.take().ok_or_else(pipe_missing)?);
        Ok(Driver { child, to, from })
    }

    fn send(&mut self, during: &'static str, words: &[u32]) -> Result<(), DriverError> {
        let ended = |source| DriverError::Ended { during, source };
        for w in words {
            self.to.write_all(&w.to_le_bytes()).map_err(ended)?;
        }
        self.to.flush().map_err(ended)
    }

    fn receive<const N: usize>(&mut self, during: &'static str) -> Result<[u32; N], DriverError> {
        let mut out = [0; N];
        for w in &mut out {
            let mut b = [0; 4];
            self.from
                .read_exact(&mut b)
                .map_err(|source| DriverError::Ended { during, source })?;
            *w = u32::from_le_bytes(b);
        }
        Ok(out)
    }

    /// Idle and back-pressure probability of every channel (0..1) and the seed of the choices.
    pub fn set_stalls(&mut self, probability: f64, seed: u32) -> Result<(), DriverError> {
        let per_million = (probability.clamp(0.0, 0.95) * 1e6) as u32;
        self.send("stall set-up", &[10, per_million, seed])?;
        self.receive::<1>("stall set-up")?;
        Ok(())
    }

    /// Writes a 32-bit control register with all byte strobes.
    pub fn write_register(&mut self, address: u32, value: u32) -> Result<(), DriverError> {
        let response = self.write_register_raw(address, value, 0xF)?;
        if response != 0 {
            return Err(DriverError::BusError { address, response });
        }
        Ok(())
    }

    /// Writes with byte strobes and returns the AXI response.
    pub fn write_register_raw(
        &mut self,
        address: u32,
        value: u32,
        strobe: u32,
    ) -> Result<u32, DriverError> {
        const DURING: &str = "register write";
        self.send(DURING, &[1, address, value, strobe])?;
        let [status, response] = self.receive(DURING)?;
        done(status, DURING, 10_000)?;
        Ok(response)
    }

    /// Reads a control register.
    pub fn read_register(&mut self, address: u32) -> Result<u32, DriverError> {
        let (value, response) = self.read_register_raw(address)?;
        if response != 0 {
            return Err(DriverError::BusError { address, response });
        }
        Ok(value)
    }

    /// Reads a control register and returns value and AXI response.
    pub fn read_register_raw(&mut self, address: u32) -> Result<(u32, u32), DriverError> {
        const DURING: &str = "register read";
        self.send(DURING, &[2, address])?;
        let [status, response, value] = self.receive(DURING)?;
        done(status, DURING, 10_000)?;
        Ok((value, response))
    }

    /// Queues one packet on the token stream.
    pub fn send_tokens(&mut self, tokens: &[u32]) -> Result<(), DriverError> {
        let mut words = vec![3, tokens.len() as u32];
        words.extend_from_slice(tokens);
        self.send("token packet", &words)?;
        self.receive::<1>("token packet")?;
        Ok(())
    }

    /// Waits for one packet of the result stream; `limit` idle cycles end the wait.
    pub fn receive_result(&mut self, limit: u32) -> Result<Vec<u32>, DriverError> {
        const DURING: &str = "result packet";
        self.send(DURING, &[4, limit])?;
        let [status, n] = self.receive(DURING)?;
        done(status, DURING, limit)?;
        (0..n)
            .map(|_| self.receive::<1>(DURING).map(|w| w[0]))
            .collect()
    }

    /// Queues one packet on the state input stream.
    pub fn send_state(&mut self, beats: &[Beat]) -> Result<(), DriverError> {
        let mut words = vec![5, beats.len() as u32];
        words.extend(beats.iter().flatten());
        self.send("state packet", &words)?;
        self.receive::<1>("state packet")?;
        Ok(())
    }

    /// Waits for one packet of the state output stream.
    pub fn receive_state(&mut self, limit: u32) -> Result<Vec<Beat>, DriverError> {
        const DURING: &str = "state packet";
        self.send(DURING, &[6, limit])?;
        let [status, n] = self.receive(DURING)?;
        done(status, DURING, limit)?;
        (0..n).map(|_| self.receive::<4>(DURING)).collect()
    }

    /// Lets the clock run.
    pub fn run(&mut self, cycles: u32) -> Result<(), DriverError> {
        self.send("idle cycles", &[7, cycles])?;
        self.receive::<1>("idle cycles")?;
        Ok(())
    }

    /// Waits for the interrupt line.
    pub fn wait_interrupt(&mut self, limit: u32) -> Result<(), DriverError> {
        const DURING: &str = "interrupt";
        self.send(DURING, &[13, limit])?;
        let [status] = self.receive(DURING)?;
        done(status, DURING, limit)
    }

    /// Asserts and releases reset.
    pub fn reset(&mut self) -> Result<(), DriverError> {
        self.send("reset", &[11])?;
        self.receive::<1>("reset")?;
        Ok(())
    }

    /// Starts a waveform (models built with tracing only).
    pub fn trace(&mut self, path: &Path) -> Result<(), DriverError> {
        let text = path.to_string_lossy().into_owned();
        let during = "trace set-up";
        self.send(during, &[12, text.len() as u32])?;
        self.to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush())
            .map_err(|source| DriverError::Ended { during, source })?;
        self.receive::<1>(during)?;
        Ok(())
    }

    /// Counters so far; fails when the design broke a stream rule.
    pub fn counters(&mut self) -> Result<Counters, DriverError> {
        self.send("status", &[8])?;
        let [_, c0, c1, s0, s1, violations] = self.receive("status")?;
        if violations != 0 {
            return Err(DriverError::Protocol(violations));
        }
        Ok(Counters {
            cycles: u64::from(c1) << 32 | u64::from(c0),
            stalled: u64::from(s1) << 32 | u64::from(s0),
        })
    }

    /// When the instructions of the last sample started, left their engine ready and retired: per engine (array, vector
    /// unit, Adam) three lists of cycles since the sample began. Empty when the model does not show its sequencers.
    pub fn events(&mut self) -> Result<[[Vec<u64>; 3]; 3], DriverError> {
        const DURING: &str = "events";
        self.send(DURING, &[14])?;
        self.receive::<1>(DURING)?;
        let mut all: [[Vec<u64>; 3]; 3] = Default::default();
        for list in all.iter_mut().flatten() {
            let [n] = self.receive(DURING)?;
            for _ in 0..n {
                let [cycle] = self.receive(DURING)?;
                list.push(u64::from(cycle));
            }
        }
        Ok(all)
    }

    /// Ends the model and closes its waveform.
    pub fn finish(mut self) -> Result<(), DriverError> {
        self.send("end", &[9])?;
        self.receive::<1>("end")?;
        Ok(())
    }
}

fn done(status: u32, during: &'static str, limit: u32) -> Result<(), DriverError> {
    match status {
        0 => Ok(()),
        _ => Err(DriverError::NoProgress { during, limit }),
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A model that already ended gives an error here, which changes nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
